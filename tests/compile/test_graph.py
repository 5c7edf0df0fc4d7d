"""Compiled graphs are recorded once and are one launch a call, with eager's results."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from torch_tpu import _C, _graph


def launches(call):
    before = _C.counters()["executes"]
    result = call()
    return result, _C.counters()["executes"] - before


def same_as_eager(f, *args, **options):
    """Three calls of the compiled function are as eager ones; the later are a launch each."""
    compiled = torch.compile(f, fullgraph=True, **options)
    for n in range(3):
        got, count = launches(lambda: compiled(*args))
        want = f(*args)
        assert_close(got, want)
        if n:
            assert count == 1
    return compiled


def test_a_call_is_one_launch(graphs):
    x, y = torch.randn(4, 4, device="tpu"), torch.randn(4, device="tpu")
    same_as_eager(lambda x, y: (x.sin() @ x + y).sum(0), x, y)
    assert [type(k) for k in graphs] == [_graph._Recorded]
    assert graphs[0].op_by_op is None


def test_a_graph_without_ops_leaves_nothing_behind():
    double = torch.compile(lambda x: x * 2)
    x, y = torch.randn(16, device="tpu"), torch.randn(1024, device="tpu")
    for _ in range(2):
        double(x)
    through = torch.compile(lambda y: y.clone())
    before = _C.counters()["compiles"], torch.tpu.memory_allocated()
    copy = through(y)
    assert copy.data_ptr() != y.data_ptr()
    del y, copy
    assert torch.tpu.memory_allocated() <= before[1] - 4096
    double(x)
    assert _C.counters()["compiles"] == before[0]


def test_training_step_is_two_launches_and_the_optimizers():
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 3)).to(
        "tpu"
    )
    twin = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 3))
    twin.load_state_dict({k: v.cpu() for k, v in model.state_dict().items()})
    step = torch.compile(lambda x, y: F.cross_entropy(model(x), y), fullgraph=True)
    x, y = torch.randn(12, 8), torch.randint(0, 3, (12,))
    on_tpu = x.to("tpu"), y.to("tpu")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (model, twin)]
    for n in range(4):
        loss, forward = launches(lambda: step(*on_tpu))
        _, backward = launches(loss.backward)
        want = F.cross_entropy(twin(x), y)
        want.backward()
        assert_close(loss.detach().cpu(), want.detach(), rtol=1e-4, atol=1e-5)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if n > 1:
            assert (forward, backward) == (1, 2)  # the gradient of the loss, 1, is made, too
    for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)


def test_results_may_be_arguments_views_and_each_other():
    def f(x):
        y = x * 2
        return x, x.view(-1), x.t(), y, y[1:], y.t(), y, None, 3

    x = torch.randn(3, 4, device="tpu")
    compiled = torch.compile(f)
    for _ in range(3):
        x0, flat, turned, y, rest, y_turned, again, none, three = compiled(x)
        assert x0 is x and none is None and three == 3
        assert flat.data_ptr() == turned.data_ptr() == x.data_ptr()
        assert turned.stride() == (1, 4)
        assert_close(rest, x[1:] * 2)
        y.add_(1)
        assert_close(y_turned, y.t())
        assert_close(again, y)
        flat[0] = 7
        assert x[0, 0] == 7


def test_what_is_written_is_written():
    def f(x, y):
        x.add_(1)
        y[1:] *= x[0]
        return x + y.sum()

    compiled = torch.compile(f, fullgraph=True)
    for view in (lambda t: t, lambda t: t[:, ::2], lambda t: t.t(), lambda t: t[1:3]):
        a, b = torch.randn(4, 4), torch.randn(4, 4)
        pair = a.to("tpu"), b.to("tpu")
        for _ in range(3):
            got = compiled(view(pair[0]), view(pair[1]))
            want = f(view(a), view(b))
            assert_close(got.cpu(), want)
            assert_close(pair[0].cpu(), a)
            assert_close(pair[1].cpu(), b)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[0].expand(5, 6),
        lambda x: x.unfold(0, 2, 1),
        lambda x: x[2:],
        lambda x: x.flatten()[::7],
        lambda x: x[:0],
    ],
)
def test_arguments_of_any_layout(make):
    x = make(torch.randn(6, 6, device="tpu"))
    compiled = same_as_eager(lambda x: x.exp() + x, x)
    assert_close(compiled(x).stride(), torch.compile(lambda x: x.exp() + x)(x.cpu()).stride())


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("which", ["neither", "input", "weight"])
def test_convolutions_lie_as_in_eager_mode(dims, transposed, which):
    form = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}[dims]
    convolve = getattr(F, f"conv_transpose{dims}d" if transposed else f"conv{dims}d")
    x = torch.randn(2, 4, *(5,) * dims, device="tpu")
    weight = torch.randn(4, 4, *(3,) * dims, device="tpu")
    if which == "input":
        x = x.to(memory_format=form)
    elif which == "weight":
        weight = weight.to(memory_format=form)

    def f(x, weight):
        return convolve(x, weight).relu().movedim(1, -1)

    leaves = x.requires_grad_(), weight.requires_grad_()
    got, want = torch.compile(f)(*leaves), f(*leaves)
    assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert got.stride() == want.stride()
    gradients = [torch.autograd.grad(y.square().sum(), leaves) for y in (got, want)]
    assert_close(*gradients, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "sizes", [((9, 5), (3, 5, 7)), ((9, 6), (6, 7)), ((3, 9, 5), (3, 5, 7)), ((3, 9, 5), (5, 12))]
)
def test_products_of_groups(sizes, dtype):
    a, b = (torch.randn(s, device="tpu", dtype=dtype) for s in sizes)
    ends = {2: torch.tensor([2, 3, a.shape[-1] if b.dim() == 2 else 9])}.get(a.dim())
    if a.dim() == 3 and b.dim() == 2:
        ends = torch.tensor([4, 4, 12])
    offs = ends.to("tpu", torch.int32) if ends is not None else None
    compiled = torch.compile(lambda a, b: F.grouped_mm(a, b, offs=offs) * 1, fullgraph=True)
    assert_close(compiled(a, b), F.grouped_mm(a, b, offs=offs))


def test_views_of_channels_last():
    def f(x, weight):
        return F.conv2d(x, weight).permute(0, 2, 3, 1).view(-1, 2)

    x = torch.randn(2, 3, 4, 4, device="tpu").to(memory_format=torch.channels_last)
    same_as_eager(f, x, torch.randn(2, 3, 1, 1, device="tpu"))


def test_random_numbers_are_those_of_eager_and_move_on():
    def f(x):
        return F.dropout(x, 0.5) + torch.rand_like(x), torch.randint(0, 100, (7,), device="tpu")

    compiled = torch.compile(f, fullgraph=True)
    x = torch.ones(64, device="tpu")
    torch.manual_seed(3)
    got = [compiled(x) for _ in range(4)]
    offset = torch.tpu.get_rng_state()
    torch.manual_seed(3)
    want = [f(x) for _ in range(4)]
    assert_close(got, want)
    assert_close(offset, torch.tpu.get_rng_state())
    assert not torch.equal(got[2][0], got[3][0])


def test_checkpointing_with_dropout_draws_the_same_again(graphs):
    layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh()).to("tpu")

    def f(x):
        return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum()

    x = torch.randn(4, 8, device="tpu", requires_grad=True)
    gradients = []
    for g in (f, torch.compile(f)):
        for _ in range(2):
            torch.manual_seed(5)
            gradients.append(torch.autograd.grad(g(x), x)[0])
    for g in gradients:
        assert_close(g, gradients[0])
    assert len(graphs) == 2 and all(k.op_by_op is None for k in graphs)


def test_tensors_that_the_graph_holds_may_change():
    table = torch.arange(4.0, device="tpu")

    @torch.compile(fullgraph=True)
    def f(x):
        return x * table

    x = torch.ones(4, device="tpu")
    assert_close(f(x), table)
    table.add_(1)
    assert_close(f(x), table)


def test_sizes_as_arguments(graphs):
    @torch.compile(dynamic=True, fullgraph=True)
    def f(x):
        return x.view(-1, x.shape[0]).sum(0) * x.shape[1], x.shape[0] + 1

    for n in (3, 5, 3, 7, 5):
        x = torch.randn(n, 4, device="tpu")
        got, count = f(x)
        assert count == n + 1
        assert_close(got, x.view(-1, n).sum(0) * 4)
    assert len(graphs) == 1
    assert sum(map(len, graphs[0].programs.values())) == 3


def test_precision_is_looked_at_in_each_call(graphs):
    x = torch.randn(64, 64, device="tpu")
    compiled = torch.compile(lambda x: x @ x)
    for _ in range(2):
        compiled(x)
        with torch.tpu.precision("DEFAULT"):
            compiled(x)
    assert [len(p) for p in graphs[0].programs.values()] == [2]


def test_precision_inside_of_compiled_code(graphs, monkeypatch):
    asked = []
    plain = _graph._Interpreter.call_function

    def noted(self, target, args, kwargs):
        if target is torch.ops.aten.mm.default:
            asked.append(_C.precision())
        return plain(self, target, args, kwargs)

    monkeypatch.setattr(_graph._Interpreter, "call_function", noted)

    @torch.tpu.precision("HIGH")
    def inner(x):
        return x @ x

    def f(x):
        y = x @ x
        with torch.tpu.precision("DEFAULT"):
            y = (y @ x).relu()
        return inner(y).sum()

    x = torch.randn(8, 8, device="tpu", requires_grad=True)
    compiled = torch.compile(f, fullgraph=True)
    (got,) = torch.autograd.grad(compiled(x), x)
    assert asked[:3] == [2, 0, 1]
    assert sorted(asked[3:]) == [0, 0, 1, 1, 2, 2]
    assert_close(got, torch.autograd.grad(f(x), x)[0])
    assert _C.precision() == 2


def test_our_own_functions_break_the_graph_quietly(recwarn):
    def f(x):
        y = x * 2
        torch.tpu.synchronize()
        torch.tpu.manual_seed(3)
        return y + torch.rand_like(y)

    x = torch.ones(4, device="tpu")
    assert_close(torch.compile(f)(x), f(x))
    assert not [w for w in recwarn if "Dynamo does not know" in str(w.message)]


def test_numbers_on_the_host_are_read_in_each_call(graphs):
    compiled = torch.compile(lambda x, n: x * n)
    x = torch.ones(3, device="tpu")
    for n in (2.0, 5.0):
        assert_close(compiled(x, torch.tensor(n)), x * n)
    assert isinstance(graphs[0], _graph._Pieces)


def test_code_of_which_nothing_is_known_runs_in_each_call(graphs):
    calls = []

    @torch.library.custom_op("torch_tpu_tests::noted", mutates_args=())
    def noted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + len(calls)

    @noted.register_fake
    def _(x):
        return torch.empty_like(x)

    compiled = torch.compile(lambda x: noted(x) * 2, fullgraph=True)
    x = torch.zeros(2, device="tpu")
    assert [compiled(x)[0].item() for _ in range(3)] == [2, 4, 6]


def test_graphs_are_cut_where_values_are_read(graphs):
    weight = torch.randn(9, 9, device="tpu")

    def f(x):
        y = (x @ weight).tanh()
        chosen = y[y > 0] * 2
        count = torch.nonzero(x).shape[0]
        return chosen.sum() + count, (weight @ y).sin(), y

    with torch._dynamo.config.patch(
        capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True
    ):
        compiled = torch.compile(f, fullgraph=True)
        for _ in range(3):
            x = torch.randn(9, device="tpu")
            assert_close(compiled(x), f(x), rtol=1e-4, atol=1e-5)
    pieces = [p.run for p in graphs[0].pieces.children()]
    alone = [p for p in pieces if isinstance(p, _graph._OpByOp)]
    recorded = [p for p in pieces if isinstance(p, _graph._Recorded)]
    assert len(alone) == 2 and recorded and all(p.op_by_op is None for p in recorded)


def test_an_index_of_whole_numbers_cuts_nothing(graphs):
    i = torch.tensor([2, 0, 2], device="tpu")
    same_as_eager(lambda x: x[i].sin() + x[:, i], torch.randn(3, 3, device="tpu"))
    assert isinstance(graphs[0], _graph._Recorded) and graphs[0].op_by_op is None


def test_graphs_are_cut_at_custom_ops_also_in_training(graphs):
    @torch.library.custom_op("torch_tpu_tests::scaled", mutates_args=())
    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        return x * by

    @scaled.register_fake
    def _(x, by):
        return torch.empty_like(x)

    scaled.register_autograd(
        lambda ctx, g: (scaled(g, ctx.by), None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
    )
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 2)).to("tpu")

    def f(x):
        return scaled(model(scaled(x, 2.0).relu()), 3.0).square().sum()

    compiled = torch.compile(f, fullgraph=True)
    x = torch.randn(4, 6, device="tpu")
    for _ in range(2):
        gradients = []
        for g in (f, compiled):
            torch.manual_seed(2)
            loss = g(x)
            gradients.append(torch.autograd.grad(loss, list(model.parameters())))
        assert_close(*gradients, rtol=1e-4, atol=1e-5)
    assert len(graphs) == 2 and all(isinstance(k, _graph._Pieces) for k in graphs)


def test_conjugate_views():
    x = torch.randn(4, 4, dtype=torch.complex64, device="tpu")
    compiled = torch.compile(lambda x: x.conj() @ x + x.mH)
    for argument in (x, x.conj(), x.mH):
        assert_close(compiled(argument), argument.conj() @ argument + argument.mH)


def test_inference_mode_and_no_grad():
    model = nn.Linear(4, 4).to("tpu")
    compiled = torch.compile(model)
    x = torch.randn(2, 4, device="tpu")
    with torch.no_grad():
        assert not compiled(x).requires_grad
    with torch.inference_mode():
        assert compiled(x).is_inference()
    y = compiled(x)
    y.sum().backward()
    assert_close(model.weight.grad, x.sum(0).expand(4, 4))


def test_autocast_inside_and_outside():
    model = nn.Linear(4, 4).to("tpu")
    compiled = torch.compile(model)
    x = torch.randn(2, 4, device="tpu")
    for enabled in (True, False, True):
        with torch.autocast("tpu", dtype=torch.bfloat16, enabled=enabled):
            y = compiled(x)
            assert y.dtype == (torch.bfloat16 if enabled else torch.float32)
            assert_close(y, model(x))


def test_memory_of_arguments_that_nobody_else_holds_is_reused(full_compiles):
    @torch.compile(fullgraph=True)
    def step(x):
        return x * 1.5 + 1

    x = torch.ones(1 << 20, device="tpu")
    for _ in range(3):
        x = step(x)
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    x.mul_(2)
    base = torch.tpu.max_memory_allocated()

    @torch.compile(fullgraph=True)
    def update(x):
        x.mul_(0.5)

    for _ in range(3):
        update(x)
    torch.tpu.synchronize()
    assert torch.tpu.max_memory_allocated() <= base + (1 << 20)


def test_an_argument_that_nobody_else_holds_is_overwritten(full_compiles):
    tracing = _C.Tracing(0)
    tracing.enter()
    y = tracing.placeholder([1 << 20], [1], torch.float32) * 2 + 1
    graph = tracing.graph([y])
    tracing.exit()
    arguments = [torch.ones(1 << 20, device="tpu")]
    torch.tpu.synchronize()
    for want in (3, 7, 15):
        torch.tpu.reset_peak_memory_stats()
        before = torch.tpu.memory_allocated()
        arguments = graph(arguments, ())
        torch.tpu.synchronize()
        assert torch.tpu.max_memory_allocated() == before
        assert arguments[0][5].item() == want


def test_threads_call_one_function():
    compiled = torch.compile(lambda x: (x @ x).sum())
    inputs = [torch.randn(16, 16, device="tpu") for _ in range(8)]
    compiled(inputs[0])
    results = [None] * 8

    def work(i):
        for _ in range(10):
            results[i] = compiled(inputs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for x, got in zip(inputs, results, strict=True):
        assert_close(got, (x @ x).sum())


def test_an_index_out_of_range_names_the_line_of_the_user():
    def f(x, i):
        y = x * 2
        return y.index_select(0, i)  # this line

    compiled = torch.compile(f)
    x = torch.randn(4, device="tpu")
    compiled(x, torch.tensor([1], device="tpu"))
    bad = compiled(x, torch.tensor([9], device="tpu"))
    with pytest.raises(IndexError, match=r"9.*\n.*test_graph\.py:\d+ in f"):
        bad.cpu()
    assert_close(compiled(x, torch.tensor([3], device="tpu")), x[3:] * 2)


def test_functions_of_functions():
    def f(x):
        return torch.func.vmap(torch.func.grad(lambda a: (a.sin() * a).sum()))(x)

    same_as_eager(f, torch.randn(5, 3, device="tpu"))


def test_double_use_of_a_gradient():
    compiled = torch.compile(lambda x: (x**3).sum())
    x = torch.randn(4, device="tpu", requires_grad=True)
    for _ in range(2):
        (g,) = torch.autograd.grad(compiled(x), x)
        assert_close(g, 3 * x.detach() ** 2)


def test_traced_for_another_chip_inside():
    """Compiling ahead runs the code of a compiled graph op by op into its own program."""
    from torch_tpu.aot import _trace

    compiled = torch.compile(lambda x: x * 2, backend="tpu")
    x = torch.ones(3, device="tpu")
    compiled(x)
    text = _trace.trace(lambda x: x * 2, (x,)).text
    assert "multiply" in text
