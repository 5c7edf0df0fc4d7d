"""Sizes that change: few programs, and at every size the results of eager mode."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from torch_tpu import _C


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def on(device, tree):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.detach().to(device), tree)


def compiles(call):
    before = _C.counters()["compiles"]
    result = call()
    return result, _C.counters()["compiles"] - before


def check(f, arguments, most, marked=(), **options):
    """As on the CPU for all arguments, with at most so many programs: of all that is compiled.

    `marked`: dims of each argument that vary.
    """
    compiled = torch.compile(f, fullgraph=True, **options)
    total = 0
    for args in arguments:
        want = f(*args)
        given = on("tpu", args)
        for t, dims in zip(given, marked, strict=False):
            torch._dynamo.mark_dynamic(t, dims)
        got, count = compiles(lambda given=given: on("cpu", compiled(*given)))
        total += count
        assert_close(got, want)
    assert total <= most, f"{total} programs"


def range_of(x):
    return torch.arange(x.shape[1], device=x.device)


def with_nan(x):
    """The same numbers, while what pads them is NaN."""
    return x + (1 / x - 1 / x)


def numbers(*shape):
    return torch.randn(shape) + 3


# Functions of x [2, n, 6] without a zero.
OPS = {
    "sum": lambda x: (x.sum(1), x.sum(), x.sum((0, 1), keepdim=True)),
    "mean": lambda x: (x.mean(1), x.mean(), x.bfloat16().mean(1)),
    "var": lambda x: (x.var(1), x.std(1, keepdim=True), torch.var_mean(x, 1, correction=0)),
    "extrema": lambda x: (x.amax(1), x.amin((0, 1)), x.max(1), x.min(1), x.argmax(1), (-x).max()),
    "any": lambda x: ((x > 3).any(1), (x > -9).all(1), (x > 3).all()),
    "prod": lambda x: x.prod(1),
    "norm": lambda x: (x.norm(dim=1), torch.linalg.vector_norm(x, float("inf"), dim=1)),
    "logsumexp": lambda x: (x.logsumexp(1), x.softmax(1), x.log_softmax(1), x.softmax(2)),
    "scan": lambda x: (x.cumsum(1), x.cumprod(1), x.cummax(1)),
    "products": lambda x: (x @ x.transpose(1, 2), x.transpose(1, 2) @ x, x @ x.new_ones(6, 3)),
    "linear": lambda x: F.linear(x, x.new_ones(5, 6), x.new_ones(5)),
    "einsum": lambda x: torch.einsum("bnd,bmd->bnm", x, x).sum(-1),
    "flatten": lambda x: (x.flatten(), x.reshape(-1, 6), x.flatten(0, 1).sum(0), x.view(2, -1)),
    "unflatten": lambda x: x.reshape(-1, 6).view(2, -1, 6).sum(1),
    "heads": lambda x: x.view(x.shape[0], x.shape[1], 2, 3).transpose(1, 2),
    "transpose": lambda x: (x.transpose(1, 2), x.permute(1, 2, 0).contiguous().sum(0)),
    "last": lambda x: (x[:, -1], x[:, -2:], x[:, 1:], x[:, :-1], x[:, 0]),
    "steps": lambda x: (x[:, ::2], x[:, 1::2].sum(1), x[:, 1:-1].mean(1)),
    "halves": lambda x: (x[:, : x.shape[1] // 2].sum(1), x[:, x.shape[1] // 2 :].sum(1)),
    "cat": lambda x: (torch.cat([x, x + 1], 1), torch.cat([x[:, :1], x], 1).sum(1)),
    "cat other": lambda x: (torch.cat([x, x]), torch.cat([x, x[:, -1:]], 1), torch.stack([x, x])),
    "pad": lambda x: (F.pad(x, (0, 0, 2, 3)), F.pad(x, (1, 1)), F.pad(x, (0, 0, 0, 1)).sum(1)),
    "arange": lambda x: (range_of(x), x * range_of(x)[:, None]),
    "arange from": lambda x: torch.arange(2, x.shape[1] + 2, device=x.device) * 3,
    "size": lambda x: (x * x.shape[1], x / x.shape[1], x.sum(1) / (x.shape[1] - 1)),
    "size as a value": lambda x: x.new_full((2,), x.shape[1]),
    "full": lambda x: (torch.zeros(x.shape[1], device=x.device), torch.full_like(x, 2).sum(1)),
    "causal": lambda x: torch.ones(x.shape[1], x.shape[1], device=x.device).tril() @ x,
    "where": lambda x: (torch.where(x > 3, x, 0.0), x.masked_fill(x > 3, 1.0), x.clamp(2, 3)),
    "sort": lambda x: (x.sort(1), x.sort(1, descending=True), x.topk(3, 1), x.argsort(dim=1)),
    "sort of few": lambda x: x.round().sort(dim=1, stable=True),
    "outer": lambda x: x[:, :, None] - x[:, None],
    "expand": lambda x: (x[:, :1].expand(2, x.shape[1], 6).sum(1), x[0, 0].expand_as(x)),
    "split": lambda x: (x.split(3, 2)[1].sum(1), x.unbind(2)[0], x.chunk(2, 0)[1].sum(1)),
    "layer norm": lambda x: (F.layer_norm(x, (6,)), F.rms_norm(x, (6,)).sum(1)),
    "conv": lambda x: F.conv1d(x.transpose(1, 2), x.new_ones(4, 6, 3), padding=1).sum(2),
    "conv valid": lambda x: F.conv1d(x.transpose(1, 2), x.new_ones(4, 6, 3), stride=2),
    "attention": lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None]),
    "causal attention": lambda x: F.scaled_dot_product_attention(
        x[:, None], x[:, None], x[:, None], is_causal=True
    ),
    "masked attention": lambda x: F.scaled_dot_product_attention(
        x[:, None], x[:, None], x[:, None], attn_mask=x[:, None, :, :1] > x[:, None, None, :, 0]
    ),
    "flip": lambda x: x.flip(2),
    "repeat": lambda x: x.repeat(1, 1, 2),
    "bool": lambda x: ((x > 3) & (x < 4)).sum(1),
    "nothing": lambda x: x,
}  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_padding_leaks_nowhere(name, graphs):
    f = OPS[name]
    args = [(numbers(2, n, 6),) for n in (5, 9, 33, 7, 40, 12)]
    check(lambda x: f(with_nan(x)), args, 2, [1])
    assert graphs[0].padded is not None, "one program for each size"


@pytest.mark.parametrize("name", OPS)
def test_all_sizes_may_change(name):
    f = OPS[name]
    shapes = [(2, 5, 6), (2, 9, 6), (2, 33, 6)]
    check(lambda x: f(with_nan(x)), [(numbers(*s),) for s in shapes], 99, dynamic=True)


def put(base, index, values):
    base[:, index] = values
    return base


INDEX_OPS = {
    "embedding": lambda x, i: F.embedding(i, x[0, :4]),
    "index": lambda x, i: (x[:, i[0] % 2], x[i[0] % 2], x[0, :, 0][i % 5], x[:, -1 - i[0] % 3]),
    "gather": lambda x, i: x.gather(1, (i % 5)[..., None].expand(2, -1, 6)),
    "select": lambda x, i: (x.index_select(1, i[0] % 5), x.index_select(2, i[0])),
    "add": lambda x, i: x.new_zeros(2, 4, 6).index_add(1, i[0], x),
    "copy": lambda x, i: x.new_zeros(2, 50, 6).index_copy(1, range_of(x), x),
    "put": lambda x, i: put(x.new_zeros(2, 50, 6), range_of(x), x),
    "accumulate": lambda x, i: x.new_zeros(4).index_put((i,), x[..., 0], accumulate=True),
    "scatter add": lambda x, i: x.new_zeros(2, 4).scatter_add(1, i, x[..., 0]),
    "scatter": lambda x, i: x.new_zeros(2, 60).scatter(1, range_of(x).expand(2, -1), x[..., 1]),
    "one hot": lambda x, i: F.one_hot(i, 4).sum(1),
    "loss": lambda x, i: F.cross_entropy(x.flatten(0, 1), i.flatten()),
    "losses": lambda x, i: F.cross_entropy(x.transpose(1, 2), i, reduction="none"),
}  # fmt: skip


@pytest.mark.parametrize("name", INDEX_OPS)
def test_indices_that_are_padded(name, graphs):
    f = INDEX_OPS[name]
    args = [(numbers(2, n, 6), torch.randint(4, (2, n))) for n in (5, 9, 33, 7, 40)]
    # The sum says that the two have one size.
    check(lambda x, i: f(with_nan(x) + 0 * i[..., None], i), args, 2, [1, 1])
    assert graphs[0].padded is not None, "one program for each size"


class Decoder(nn.Module):
    def __init__(self, layers=2, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(50, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.RMSNorm(width),
                    "qkv": nn.Linear(width, 3 * width, bias=False),
                    "out": nn.Linear(width, width, bias=False),
                    "mlp": nn.Sequential(
                        nn.LayerNorm(width), nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, width)
                    ),
                }
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 50)

    def forward(self, ids):
        batch, n = ids.shape
        x = self.embed(ids)
        angles = torch.arange(n, device=ids.device)[:, None] / torch.arange(1, 5, device=ids.device)
        for layer in self.layers:
            q, k, v = (
                t.view(batch, n, self.heads, -1).transpose(1, 2)
                for t in layer["qkv"](layer["norm"](x)).chunk(3, -1)
            )
            q, k = (
                torch.cat([t[..., :4] * angles.cos(), t[..., 4:] * angles.sin()], -1)
                for t in (q, k)
            )
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + layer["out"](a.transpose(1, 2).reshape(batch, n, -1))
            x = x + layer["mlp"](x)
        return self.head(x)


@pytest.mark.parametrize("how", ["automatic", "dynamic", "marked"])
def test_forty_lengths_of_a_decoder_are_at_most_four_programs(how):
    model = Decoder().eval()
    device_model = copy.deepcopy(model).to("tpu")
    compiled = torch.compile(
        device_model, fullgraph=True, dynamic=True if how == "dynamic" else None
    )
    lengths = [3 + 37 * i % 120 for i in range(40)]
    assert len(set(lengths)) == 40
    total = 0
    with torch.no_grad():
        for n in lengths:
            ids = torch.randint(50, (2, n))
            given = ids.to("tpu")
            if how == "marked":
                torch._dynamo.mark_dynamic(given, 1, min=2, max=128)
            got, count = compiles(lambda given=given: compiled(given).cpu())
            total += count
            assert_close(got, model(ids), rtol=1e-4, atol=1e-4)
    assert total <= 4


def test_training_with_sizes_that_change():
    model = Decoder()
    device_model = copy.deepcopy(model).to("tpu")
    compiled = torch.compile(device_model, fullgraph=True, dynamic=True)

    def step(model, run, ids):
        loss = F.cross_entropy(run(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        return loss

    for n in (5, 9, 17, 12, 31):
        ids = torch.randint(50, (2, n))
        want = step(model, model, ids)
        assert_close(step(device_model, compiled, ids.to("tpu")).cpu(), want, rtol=1e-4, atol=1e-5)
        for (name, p), q in zip(model.named_parameters(), device_model.parameters(), strict=True):
            assert_close(
                q.grad.cpu(), p.grad, rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}"
            )


DIFFERENTIABLE = """sum mean var logsumexp products flatten last cat pad causal conv attention where
    split heads outer expand steps halves sort""".split()


@pytest.mark.parametrize("name", [*DIFFERENTIABLE, "layer norm", "causal attention"])
def test_gradients(name):
    f = OPS[name]

    def leaves(x):
        found = [t for t in torch.utils._pytree.tree_leaves(f(with_nan(x))) if t.dtype == x.dtype]
        return sum((t / 50).sin().sum() for t in found)

    compiled = torch.compile(leaves, fullgraph=True, dynamic=True)
    for n in (5, 9, 33, 7):
        x = numbers(2, n, 6)
        y = x.to("tpu").requires_grad_()
        x.requires_grad_()
        leaves(x).backward()
        compiled(y).backward()
        assert_close(y.grad.cpu(), x.grad, rtol=1e-3, atol=1e-4)


def test_two_sizes_and_a_batch_that_ends():
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))
    check(
        lambda x, w: torch.softmax(torch.tanh(x @ w).transpose(0, 1) @ x, -1),
        [
            (torch.randn(b, 6), torch.randn(6, n))
            for b, n in ((4, 5), (4, 9), (7, 5), (40, 33), (3, 2), (10, 12), (50, 20), (6, 3))
        ],
        5,
        dynamic=True,
    )
    device_model = copy.deepcopy(model).to("tpu")
    compiled = torch.compile(device_model)
    for b in (8, 8, 5, 8, 3, 8):
        x = torch.randn(b, 6)
        assert_close(compiled(x.to("tpu")).detach().cpu(), model(x).detach())


def test_a_number_is_no_size():
    compiled = torch.compile(lambda x, k: x * k + k, dynamic=True)
    x = torch.ones(4, device="tpu")
    compiled(x, 3), compiled(x, 4)
    for k in (5, -7, 0, 10**6):
        got, count = compiles(lambda k=k: compiled(x, k).cpu())
        assert_close(got, torch.full((4,), 2.0 * k))
        assert count == 0


@pytest.mark.parametrize("index", [6, 31, -7])
def test_an_index_into_the_padding_is_out_of_range(index):
    compiled = torch.compile(lambda x, i: x[i] * 2, dynamic=True)
    x, i = torch.randn(6, device="tpu"), torch.tensor([0, 1, 5], device="tpu")
    assert_close(compiled(x, i).cpu(), x.cpu()[i.cpu()] * 2)
    i[1] = index
    with pytest.raises(IndexError, match="out of"):
        compiled(x, i).cpu()
    i[1] = -6
    assert_close(compiled(x, i).cpu(), x.cpu()[i.cpu()] * 2)


def test_results_are_ordinary_tensors(tmp_path):
    compiled = torch.compile(lambda x: x.transpose(1, 2) * 2, dynamic=True)
    for n in (5, 9):
        x = torch.randn(2, n, 3)
        got = compiled(x.to("tpu"))
        want = x.transpose(1, 2) * 2
        assert got.stride() == want.stride() and got.is_contiguous() == want.is_contiguous()
        assert got.untyped_storage().nbytes() == want.untyped_storage().nbytes()
        torch.save(got, tmp_path / "x.pt")
        assert_close(torch.load(tmp_path / "x.pt", map_location="cpu"), want)
        assert_close((got + 1).cpu(), want + 1)
        got[0, 0] = 7
        want[0, 0] = 7
        assert_close(got.cpu(), want)
        assert got[1, 1, 2].item() == want[1, 1, 2].item()
        assert got.clone().untyped_storage().nbytes() == got.untyped_storage().nbytes()


def test_a_result_goes_in_again_without_a_copy():
    """A cache that grows: the keys and values of a decoder, a token at a time."""

    def step(cache, new):
        cache = torch.cat([cache, new], 2)
        return cache, F.scaled_dot_product_attention(new, cache, cache)

    compiled = torch.compile(step, fullgraph=True, dynamic=True)
    cache = torch.randn(1, 2, 4, 8)
    mine = cache.to("tpu")
    total = 0
    for _ in range(40):
        new = torch.randn(1, 2, 1, 8)
        cache, want = step(cache, new)
        before = _C.counters()["bytes_d2h"]
        (mine, got), count = compiles(lambda mine=mine, new=new: compiled(mine, new.to("tpu")))
        total += count
        copied = _C.counters()["bytes_d2h"] - before
        assert_close(got.cpu(), want)
    assert copied <= new.nbytes
    # The first size and two buckets, with the old cache overwritten or, where it is kept, not.
    assert total <= 5
    assert_close(mine.cpu(), cache)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.T,
        lambda x: (x[:, 1:], x + 1),
        lambda x: torch.tensor_split(x, [1, 2, 3], 1),
        lambda x: ((y := x + 1), y.T, y[1:, 2:]),
        lambda x: (x[:2, 1:3], x.unfold(0, 2, 1)),
        lambda x: (x.view(-1)[3:], x.expand(2, *x.shape)),
    ],
)
def test_results_that_are_views_lie_where_they_do_in_eager_mode(f):
    compiled = torch.compile(f, fullgraph=True, dynamic=True)
    for n in (5, 9, 20):
        whole = torch.randn(n + 2, 6)
        x, y = whole[1:-1], whole.to("tpu")[1:-1]
        want, got = f(x), compiled(y)
        for w, g in zip(*[t if isinstance(t, tuple) else (t,) for t in (want, got)], strict=True):
            assert g.stride() == w.stride()
            assert_close(g.cpu(), w)
            if w.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
                assert g.data_ptr() - y.data_ptr() == w.data_ptr() - x.data_ptr()


def test_a_number_of_the_host_that_nothing_needs():
    compiled = torch.compile(lambda x, scale: x * 2, dynamic=True)
    for n in (5, 9):
        assert compiled(torch.ones(n, device="tpu"), torch.tensor(3.0)).sum().item() == 2 * n


def test_a_number_of_the_host_that_the_backward_pass_needs():
    def f(x, most):
        return torch.renorm(x, 2, 1, most).sum()

    compiled = torch.compile(f)
    x = torch.randn(3, 4)
    y = x.to("tpu").requires_grad_()
    f(x.requires_grad_(), 0.5).backward()
    compiled(y, 0.5).backward()
    assert_close(y.grad.cpu(), x.grad)


def test_what_cannot_be_padded_is_compiled_for_each_size(graphs):
    compiled = torch.compile(lambda x: torch.fft.fft(x).abs(), dynamic=True, fullgraph=True)
    for n in (5, 9, 33, 7):
        x = torch.randn(n)
        assert_close(compiled(x.to("tpu")).cpu(), torch.fft.fft(x).abs(), rtol=1e-4, atol=1e-4)
    assert graphs[0].padded is None


def test_dropout_draws_the_numbers_of_eager_mode():
    f = lambda x: F.dropout(x, 0.5)  # noqa: E731
    compiled = torch.compile(f, dynamic=True)
    for n in (5, 9, 33):
        x = torch.ones(n, 4, device="tpu")
        torch.manual_seed(3)
        want = f(x)
        torch.manual_seed(3)
        assert_close(compiled(x), want)


def test_parts_of_a_tensor_are_read_without_a_program():
    x = torch.arange(24.0).view(4, 6).to("tpu")
    x.sum().item()
    before = _C.counters()
    assert x[2, 3].item() == 15
    assert_close(x[1:3].cpu(), torch.arange(6.0, 18).view(2, 6))
    after = _C.counters()
    if "cpu" in _C.plugin_info()["platform_name"]:
        assert after["executes"] == before["executes"]


def test_attention_of_symbolic_sizes_is_fused():
    compiled = torch.compile(
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), dynamic=True
    )
    for n in (5, 9):
        q = torch.randn(2, 3, n, 8)
        want = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        assert_close(compiled(q.to("tpu")).cpu(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_modes_are_accepted(mode):
    for backend in ({}, {"backend": "tpu"}):
        torch._dynamo.reset()
        x = torch.ones(3, device="tpu")
        assert torch.compile(lambda x: x + 1, mode=mode, **backend)(x).sum().item() == 6


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "fastest"}, "fastest"),
        ({"options": {"triton.cudagraphs": True}}, "it has: pad_sizes"),
        ({"options": {"pad_sizes": 3}}, "True or False, not 3"),
    ],
)
def test_modes_and_options_that_are_not_known(options, text):
    with pytest.raises(Exception, match=text):
        torch.compile(lambda x: x + 1, backend="tpu", **options)(torch.ones(3, device="tpu"))


def test_padding_can_be_switched_off(graphs):
    f = torch.compile(lambda x: x.sum(0), dynamic=True, options={"pad_sizes": False})
    for n in (5, 9):
        assert f(torch.ones(n, device="tpu")).item() == n
    assert graphs[0].padded is None
