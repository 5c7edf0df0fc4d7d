"""Faults that a new device meets in torch 2.13, one test each.

Those of process groups (DDP, DTensor, FSDP2 training, bare init_process_group) belong to
tests/distributed.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers import exact, same
from torch import nn


def test_copy_of_lazy_conjugate_and_negative(mode):
    x = torch.randn(3, dtype=torch.complex64)
    y = x.to("tpu")
    for host, device in (
        (x.conj(), y.conj()),
        (x.conj().imag, y.conj().imag),
        (torch._neg_view(x), torch._neg_view(y)),
        (x.real, y.real),
    ):
        exact(device.clone(), host.clone().resolve_conj().resolve_neg())
        exact(torch.zeros_like(device).copy_(device), host.resolve_conj().resolve_neg())
        assert torch.equal(device.cpu().resolve_conj().resolve_neg(),
                           host.resolve_conj().resolve_neg())  # fmt: skip
    target = torch.zeros(3, dtype=torch.complex64, device="tpu")
    target.conj().copy_(y)
    exact(target, x.conj().resolve_conj())


def test_rotary_embedding_with_complex_numbers():
    def rotate(x, freqs):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * freqs).flatten(-2)

    angles = torch.outer(torch.arange(5.0), torch.tensor([1.0, 0.5, 0.1, 0.01]))
    freqs, x = torch.polar(torch.ones_like(angles), angles), torch.randn(2, 5, 8)
    host, device = x.clone().requires_grad_(), x.to("tpu").requires_grad_()
    want, got = rotate(host, freqs), rotate(device, freqs.to("tpu"))
    same(got, want)
    want.square().sum().backward()
    got.square().sum().backward()
    same(device.grad, host.grad)


def aliasing_ops():
    """Every aten op whose schema says that a result is a view of an argument."""
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::") or schema.is_mutable:
            continue
        if any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns):
            name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
            yield name


# Layouts that the device does not have.
OTHER_LAYOUTS = ("sparse", "nested", "values", "indices", "sym_", "ccol", "crow", "col_", "row_")


def test_every_view_op_has_a_kernel_that_aliases():
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    missing = []
    for name in aliasing_ops():
        if any(word in name for word in OTHER_LAYOUTS) or not torch._C._dispatch_has_kernel(name):
            continue
        if not any(
            has(name, key)
            for key in ("PrivateUse1", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
        ):
            missing.append(name)
    assert not missing, missing


def test_views_as_real_and_complex_alias(mode):
    x = torch.randn(3, dtype=torch.complex64).to("tpu")
    torch.view_as_real(x).fill_(1)
    exact(x, torch.full((3,), 1 + 1j))
    y = torch.zeros(3, 2, device="tpu")
    torch.view_as_complex(y).fill_(2 + 3j)
    exact(y, torch.tensor([[2.0, 3]] * 3))
    x.real.mul_(4)
    x.imag.zero_()
    exact(x, torch.full((3,), 4 + 0j))
    z = torch.zeros(4, device="tpu")
    z.view(torch.int32).fill_(0x3F800000)
    exact(z, torch.ones(4))
    z.view(torch.uint8)[3::4] = 0
    exact(z, torch.full((4,), torch.tensor(0x00800000, dtype=torch.int32).view(torch.float32)))


@pytest.mark.parametrize(
    "conv, shape",
    [
        (nn.Conv1d(4, 6, 3, stride=2), (2, 4, 11)),
        (nn.Conv2d(4, 6, 3, padding=1, groups=2), (2, 4, 7, 6)),
        (nn.Conv2d(3, 5, (3, 2), dilation=2, padding="same", bias=False), (1, 3, 8, 9)),
        (nn.Conv3d(2, 3, 2), (1, 2, 4, 5, 3)),
        (nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), (2, 4, 5, 5)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_convolution_and_its_backward(conv, shape):
    host, device = copy.deepcopy(conv), copy.deepcopy(conv).to("tpu")
    x = torch.randn(shape)
    a, b = x.clone().requires_grad_(), x.to("tpu").requires_grad_()
    want, got = host(a), device(b)
    same(got, want, rtol=1e-4, atol=1e-5)
    want.square().sum().backward()
    got.square().sum().backward()
    same(b.grad, a.grad, rtol=1e-4, atol=1e-4)
    same(device.weight.grad, host.weight.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_rnn_forward_and_backward(kind):
    host = kind(3, 4, num_layers=2, batch_first=True)
    device = copy.deepcopy(host).to("tpu")
    x = torch.randn(2, 5, 3)
    want, got = host(x)[0], device(x.to("tpu"))[0]
    same(got, want)
    want.square().sum().backward()
    got.square().sum().backward()
    for h, d in zip(host.parameters(), device.parameters(), strict=True):
        same(d.grad, h.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell, states", [(nn.LSTMCell, 2), (nn.GRUCell, 1)])
def test_rnn_cells(cell, states):
    host = cell(3, 4)
    device = copy.deepcopy(host).to("tpu")
    x, h = torch.randn(2, 3), [torch.randn(2, 4) for _ in range(states)]
    want = host(x, tuple(h) if states > 1 else h[0])
    moved = [t.to("tpu") for t in h]
    got = device(x.to("tpu"), tuple(moved) if states > 1 else moved[0])
    for g, w in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want)), strict=True):
        same(g, w)


def test_packed_sequence():
    lstm = nn.LSTM(2, 3)
    sequences = [torch.randn(n, 2) for n in (4, 2, 1)]
    packed = nn.utils.rnn.pack_sequence(sequences)
    want = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0])[0]
    got = nn.utils.rnn.pad_packed_sequence(lstm.to("tpu")(packed.to("tpu"))[0])[0]
    same(got, want)


@pytest.mark.parametrize("case", ["plain", "causal", "mask", "bool_mask", "gqa", "scale", "5d"])
def test_attention(case):
    heads = 4 if case == "gqa" else 2
    q, k, v = torch.randn(2, heads, 5, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)
    options = {
        "plain": {},
        "causal": {"is_causal": True},
        "mask": {"attn_mask": torch.randn(5, 6)},
        "bool_mask": {"attn_mask": torch.rand(2, 1, 5, 6) > 0.3},
        "gqa": {"enable_gqa": True},
        "scale": {"scale": 0.3},
        "5d": {},
    }[case]
    if case == "5d":
        q, k, v = (t.unsqueeze(0) for t in (q, k, v))
    host = [t.clone().requires_grad_() for t in (q, k, v)]
    device = [t.to("tpu").requires_grad_() for t in (q, k, v)]
    moved = {n: o.to("tpu") if isinstance(o, torch.Tensor) else o for n, o in options.items()}
    want = F.scaled_dot_product_attention(*host, **options)
    got = F.scaled_dot_product_attention(*device, **moved)
    same(got, want, rtol=1e-4, atol=1e-5)
    want.square().sum().backward()
    got.square().sum().backward()
    for h, d in zip(host, device, strict=True):
        same(d.grad, h.grad, rtol=1e-3, atol=1e-4)


def test_attention_with_dropout_is_right_on_average():
    torch.manual_seed(0)
    q = torch.zeros(1, 1, 64, 4, device="tpu")
    v = torch.ones(1, 1, 256, 4, device="tpu")
    k = torch.zeros(1, 1, 256, 4, device="tpu")
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    same(out.mean(), torch.tensor(1.0), rtol=0.1, atol=0)
    assert out.std().item() > 0


def test_multihead_attention_and_encoder_fast_paths():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x, mask = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    for training in (True, False):
        layer.train(training).cpu()
        want = layer(x, src_key_padding_mask=mask)
        with torch.set_grad_enabled(training):
            got = layer.to("tpu")(x.to("tpu"), src_key_padding_mask=mask.to("tpu"))
        same(got[0], want[0].detach(), rtol=1e-4, atol=1e-5)
        same(got[1, :3], want[1, :3].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_transformer_with_padding(batch_first, norm_first, training):
    # Evaluation without gradients takes torch's fast path, which packs batches on CPU and CUDA.
    options = {"dropout": 0.0, "batch_first": batch_first, "norm_first": norm_first}
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, **options), 2)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, **options), 2)
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    if not batch_first:
        x = x.transpose(0, 1)

    def run(device, **masks):
        models = [m.to(device).train(training) for m in (encoder, decoder)]
        masks = {name: mask.to(device) for name, mask in masks.items()}
        source = x.to(device)
        with torch.set_grad_enabled(training):
            memory = models[0](source, **masks)
            memory_masks = {name.replace("src", "memory"): mask for name, mask in masks.items()}
            result = models[1](source, memory, **memory_masks)
        both = torch.stack([memory, result]).cpu()
        return both if batch_first else both.transpose(1, 2)

    for masks in ({}, {"src_key_padding_mask": padding}):
        want, got = run("cpu", **masks), run("tpu", **masks)
        kept = ~padding if masks else torch.ones_like(padding)
        torch.testing.assert_close(got[0][kept], want[0][kept], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got[1], want[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_multihead_attention_with_padding(training):
    attention = nn.MultiheadAttention(8, 2, batch_first=True).train(training)
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    for weights in (True, False):
        with torch.set_grad_enabled(training):
            want = attention.cpu()(x, x, x, padding, need_weights=weights)
            moved = x.to("tpu")
            got = attention.to("tpu")(moved, moved, moved, padding.to("tpu"), need_weights=weights)
        for g, w in zip(got, want, strict=True):
            assert (g is None) == (w is None)
            if w is not None:
                same(g, w.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16, torch.float32])
def test_mode_takes_the_smallest_of_several_and_its_last_place(dtype):
    x = torch.randint(0, 4, (3, 12, 5)).to(dtype)  # up to 16 elements the CPU's sort is stable
    for dim in range(3):
        for keepdim in (True, False):
            for got, want in zip(x.to("tpu").mode(dim, keepdim), x.mode(dim, keepdim), strict=True):
                exact(got, want)


def test_mode_with_nan():
    nan = float("nan")  # equals nothing, so it is the mode of nothing else only
    rows = {
        (nan, 2, 1, 3): (1, 2),
        (3, nan, 2, nan, 2, 1): (2, 4),
        (1, nan, 1, nan, 1): (1, 4),
        (nan, nan): (nan, 0),
    }
    for row, (value, place) in rows.items():
        got = torch.tensor(row).to("tpu").mode()
        exact(got.values, torch.tensor(float(value)))
        assert got.indices.item() == place


def test_histograms_of_integers():
    x = torch.tensor([0, 3, 3, 1, 7], dtype=torch.int32)
    want = torch.histc(x.float(), bins=8, min=0, max=8).to(torch.int32)
    exact(torch.histc(x.to("tpu"), bins=8, min=0, max=8), want)
    exact(torch.histc(x.float().to("tpu"), bins=8, min=0, max=8), want.float())
    exact(torch.bincount(x.to("tpu")), torch.bincount(x))
    exact(torch.bincount(x.to("tpu"), minlength=12), torch.bincount(x, minlength=12))


def test_foreach_and_fused_optimizers_agree():
    weights = [torch.randn(3, 4), torch.randn(5)]
    for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        results = []
        for where, options in (
            ("cpu", {"foreach": False}),
            ("tpu", {"foreach": False}),
            ("tpu", {"foreach": True}),
            ("tpu", {"fused": True}),
        ):
            params = [nn.Parameter(w.clone().to(where)) for w in weights]
            optimizer = make(params, lr=0.1, weight_decay=0.01, **options)
            for _ in range(3):
                optimizer.zero_grad()
                sum((p**2).sum() for p in params).backward()
                optimizer.step()
            results.append([p.detach().cpu() for p in params])
        for other in results[1:]:
            torch.testing.assert_close(other, results[0])


def test_mixed_with_zero_dim_host_tensors():
    x = torch.arange(3.0, device="tpu")
    exact(x * torch.tensor(2.0), torch.arange(3.0) * 2)
    exact(torch.where(x > 1, x, torch.tensor(0.0)), torch.tensor([0.0, 0, 2]))
    x += torch.tensor(1)
    exact(x, torch.arange(3.0) + 1)
    with pytest.raises(RuntimeError, match="cpu"):
        x + torch.ones(3)


def test_indices_on_the_host():
    x = torch.arange(12.0).view(3, 4)
    y = x.to("tpu")
    exact(y[torch.tensor([2, 0])], x[torch.tensor([2, 0])])
    exact(y[torch.tensor([True, False, True])], x[torch.tensor([True, False, True])])
    exact(y[[0, 2], :, None], x[[0, 2], :, None])


def test_bfloat16_is_the_default_of_autocast_and_exists_everywhere():
    x = torch.randn(3, 3, dtype=torch.bfloat16)
    same(x.to("tpu") @ x.to("tpu"), x @ x, rtol=1e-2, atol=1e-2)
    assert torch.get_autocast_dtype("tpu") == torch.bfloat16


def test_subclasses():
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(torch.ones(2), torch.zeros(2)).to("tpu")
    y = x * 2 + 1
    exact(y.a, torch.full((2,), 3.0))
    exact(y.b, torch.ones(2))
    fake_mode = torch._subclasses.FakeTensorMode()
    with fake_mode:
        z = torch.empty(3, 4, device="tpu").t() @ torch.empty(3, 5, device="tpu")
    assert z.device == torch.device("tpu:0") and z.shape == (4, 5)


def test_func_transforms():
    x = torch.randn(4, 3)

    def f(x):
        return (x.sin() ** 2).sum()

    y = x.to("tpu")
    same(torch.func.grad(f)(y), torch.func.grad(f)(x))
    same(torch.func.vmap(f)(y), torch.func.vmap(f)(x))
    same(torch.func.jacrev(torch.sin)(y[0]), torch.func.jacrev(torch.sin)(x[0]))
    same(torch.func.jvp(torch.sin, (y,), (y,))[1], torch.func.jvp(torch.sin, (x,), (x,))[1])
    same(torch.func.functionalize(lambda x: x.clone().add_(1))(y), x + 1)


def test_graph_tools():
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: x[1:].sin())(torch.ones(3, device="tpu"))
    same(graph(torch.arange(3.0, device="tpu")), torch.arange(1.0, 3).sin())
    program = torch.export.export(nn.Linear(2, 2).to("tpu"), (torch.ones(1, 2, device="tpu"),))
    assert program.module()(torch.ones(1, 2, device="tpu")).is_tpu
