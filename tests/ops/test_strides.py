"""Strides of results, where a size is 1 or 0 too: TensorIterator's rules, as on the CPU."""

import pytest
import torch

from torch_tpu.mode import EagerMode, set_eager_mode

OPS = {
    "mul": lambda x: x * x,
    "number": lambda x: x * 2,
    "exp": lambda x: x.exp(),
    "clone": lambda x: x.clone(),
    "compare": lambda x: x > 1,
    "where": lambda x: torch.where(x > 1, x, x),
    "cast": lambda x: x.to(torch.int32),
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "lerp": lambda x: torch.lerp(x, x, 0.5),
    "clamp": lambda x: torch.clamp(x, 0),
    "promote": lambda x: x * x.double(),
    "broadcast": lambda x: x + x.new_ones(x.shape[-1]),
    "contiguous": lambda x: x.new_ones(x.shape) + x,
    "shift": lambda x: x.to(torch.int64) << 1,
    "empty_like": torch.empty_like,
}

LAYOUTS = [
    ((2, 3), (1, 2)),
    ((1, 8), (1, 1)),
    ((8, 1), (1, 9)),
    ((1, 1, 8), (1, 1, 1)),
    ((1, 2, 2, 4), (16, 1, 8, 2)),
    ((1, 2, 2, 4), (1, 1, 8, 2)),
    ((1, 2, 2, 4), (3, 1, 8, 2)),
    ((1, 1, 1, 8), (8, 8, 8, 1)),
    ((1, 1, 1, 8), (1, 1, 1, 1)),
    ((1, 1, 1, 1), (5, 6, 7, 8)),
    ((2, 1, 1, 1), (1, 1, 1, 1)),
    ((2, 3, 1, 1), (3, 1, 9, 9)),
    ((2, 3, 4, 5), (60, 1, 15, 3)),
    ((2, 3, 4, 5), (120, 2, 30, 6)),
    ((2, 3, 4, 5, 6), (360, 1, 90, 18, 3)),
    ((2, 3, 4), (4, 0, 1)),
    ((2, 8, 0, 4), (1, 2, 64, 16)),
    ((0, 3), (3, 1)),
    ((2, 0, 3), (1, 2, 2)),
]


@pytest.mark.parametrize(("shape", "strides"), LAYOUTS, ids=str)
def test_strides_of_results(shape, strides):
    with set_eager_mode(EagerMode.DEFER_AND_FUSE):
        c, t = (torch.ones(800, device=d).as_strided(shape, strides) for d in ("cpu", "tpu"))
        for name, f in OPS.items():
            want, got = f(c), f(t)
            assert got.shape == want.shape and got.stride() == want.stride(), (
                name,
                got.stride(),
                want.stride(),
            )


@pytest.mark.parametrize("shape", [(2, 5, 2, 8), (2, 2, 5, 8)])
def test_attention_is_laid_out_like_its_query(shape, mode):
    q = torch.randn(shape)
    q = q.transpose(1, 2) if shape[1] == 5 else q
    f = torch.nn.functional.scaled_dot_product_attention
    want, got = f(q, q, q), f(*[q.to("tpu")] * 3)
    assert got.stride() == q.stride()
    torch.testing.assert_close(got.cpu(), want)
    torch._dynamo.reset()
    torch.compile(lambda q: f(q, q, q).transpose(1, 2).reshape(2, 5, 16))(q.to("tpu"))


def flat_and(x, y):
    # The fake tensor of this result is row-major, the real one is not.
    return torch.logical_and(x, y).reshape(-1)


def last_channels(x, weight):
    # The device's fake convolution is row-major, the real one keeps channels_last.
    y = torch.nn.functional.conv2d(x, weight)
    return y.reshape(y.shape[0], -1) * 2


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_graphs_have_the_strides_they_were_made_for(dynamic):
    torch._dynamo.reset()
    x = torch.randint(0, 2, (10, 1, 5)).bool()
    y = torch.randint(0, 2, (5, 10)).bool().mT
    compiled = torch.compile(flat_and, dynamic=dynamic)
    for _ in range(2):
        got = compiled(x.to("tpu"), y.to("tpu"))
        assert torch.equal(got.cpu(), flat_and(x, y))
    image = torch.randn(2, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(4, 3, 3, 3)
    compiled = torch.compile(last_channels, dynamic=dynamic)
    for _ in range(2):
        a, w = image.to("tpu").requires_grad_(), weight.to("tpu").requires_grad_()
        got = compiled(a, w)
        got.sum().backward()
        torch.testing.assert_close(got.cpu(), last_channels(image, weight), rtol=1e-4, atol=1e-4)
        assert a.grad.shape == a.shape
