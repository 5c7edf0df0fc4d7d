"""Control flow of compiled graphs is control flow of one program, with the CPU's results."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import run_python
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as map_over
from torch.testing import assert_close

from torch_tpu import _C


@pytest.fixture
def reasons(caplog):
    """Why something did not become control flow of the program."""
    caplog.set_level(logging.INFO, "torch_tpu")
    return lambda: [r.getMessage() for r in caplog.records if "runs" in r.getMessage()]


def counted(call):
    before = _C.counters()
    result = call()
    after = _C.counters()
    return result, {k: after[k] - before[k] for k in ("executes", "compiles", "bytes_d2h")}


def on_tpu(args):
    return [a.detach().to("tpu").requires_grad_(a.requires_grad) for a in args]


def same_as_cpu(f, *calls, **tolerance):
    """`f` compiled and called with each list of arguments on tpu gives the CPU's results and
    gradients in one launch a pass; from the second call on it compiles nothing."""
    compiled = torch.compile(f, fullgraph=True)
    for n, args in enumerate(calls):
        mine = on_tpu(args)
        got, count = counted(lambda mine=mine: compiled(*mine))
        want = f(*args)
        assert count["executes"] == 1
        assert count["bytes_d2h"] == 0
        if n:
            assert count["compiles"] == 0
        assert_close(_cpu(got), _detached(want), **tolerance)
        inputs = [i for i, a in enumerate(args) if a.requires_grad]
        if not inputs:
            continue
        outputs = [(g, w) for g, w in zip(_leaves(got), _leaves(want), strict=True) if w.grad_fn]
        tangents = [torch.randn_like(w) for _, w in outputs]
        given = on_tpu(tangents)
        torch.tpu.synchronize()
        leaves = [mine[i] for i in inputs]
        made, count = counted(
            lambda o=outputs, m=leaves, g=given: torch.autograd.grad([x for x, _ in o], m, g)
        )
        assert count["executes"] == 1
        assert count["bytes_d2h"] == 0
        if n:
            assert count["compiles"] == 0
        wanted = torch.autograd.grad([w for _, w in outputs], [args[i] for i in inputs], tangents)
        assert_close(_cpu(made), list(wanted), **tolerance)


def _leaves(x):
    return torch.utils._pytree.tree_leaves(x)


def _detached(x):
    return [t.detach() for t in _leaves(x)]


def _cpu(x):
    return [t.detach().cpu() for t in _leaves(x)]


# -- while_loop ------------------------------------------------------------------------------------


def power(x, n):
    """A loop whose length is a value."""
    zero = torch.zeros((), dtype=torch.int64, device=x.device)
    return while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * 1.5 + i), (zero, x))


def test_a_loop_is_one_launch_whatever_its_length(reasons):
    same_as_cpu(power, *([torch.randn(4), torch.tensor(n)] for n in (3, 0, 7)))
    assert reasons() == []


def test_a_loop_carries_all_kinds_of_tensors():
    def f(n, half, flag, x, a):
        def step(i, half, flag, x):
            return i + 1, half + i, ~flag, torch.where(flag, x @ a, x)

        zero = torch.zeros((), dtype=torch.int32, device=x.device)
        return while_loop(lambda i, *_: i < n, step, (zero, half, flag, x))

    args = torch.tensor(3), torch.ones(5, dtype=torch.bfloat16), torch.tensor(True)
    same_as_cpu(f, [*args, torch.randn(3, 3), torch.randn(3, 3)])


def test_strides_of_what_a_loop_is_given():
    def f(x, y):
        return while_loop(
            lambda x: x.sum() < 100, lambda x: ((x + y).abs() * 2 + y.t().reshape(3, 3),), (x.t(),)
        )

    same_as_cpu(f, [torch.rand(3, 3) + 1, torch.rand(3, 3).t()])


def test_an_equal_loop_compiles_nothing():
    x, n = torch.randn(4, device="tpu"), torch.tensor(3, device="tpu")
    first = torch.compile(power, fullgraph=True)(x, n)
    torch._dynamo.reset()
    again, count = counted(lambda: torch.compile(power, fullgraph=True)(x, n))
    assert count == {"executes": 1, "compiles": 0, "bytes_d2h": 0}
    assert_close(again, first, rtol=0, atol=0)


def test_gradients_of_a_loop():
    """How often it ran is the size of what it saves: torch's own code runs it."""

    def f(x, n):
        zero = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x.sin() * 1.1), (zero, x))[1]

    x = torch.randn(4, requires_grad=True)
    on = x.detach().to("tpu").requires_grad_()
    got = torch.compile(f, fullgraph=True)(on, torch.tensor(3, device="tpu"))
    want = x
    for _ in range(3):
        want = want.sin() * 1.1
    assert_close(got.detach().cpu(), want.detach())
    got.sum().backward()
    want.sum().backward()
    assert_close(on.grad.cpu(), x.grad)


def test_an_int_that_a_loop_carries():
    def f(x):
        return while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, x * 2), (0, x))

    x = torch.randn(3)
    compiled = torch.compile(f, fullgraph=True)
    for n in range(2):
        (i, y), count = counted(lambda: compiled(x.to("tpu")))
        assert i == 4
        assert_close(y.cpu(), x * 16)
        assert count["executes"] == 1
        assert count["compiles"] == 1 - n
        assert count["bytes_d2h"] == 8


def test_a_body_that_changes_a_shape_is_torchs_error():
    def f(x):
        return while_loop(lambda x: x.sum() < 9, lambda x: (torch.cat([x, x]),), (x,))

    with pytest.raises(Exception, match="carried_inputs|body") as error:
        torch.compile(f, fullgraph=True)(torch.ones(3, device="tpu"))
    assert "torch._dynamo" in type(error.value).__module__


# -- cond ------------------------------------------------------------------------------------------


def test_branches_and_their_gradients(reasons):
    def f(p, x, w):
        return torch.cond(p, lambda x: (x.sin() @ w, x * 2), lambda x: (x.cos(), x * w), (x,))

    same_as_cpu(
        f,
        *(
            [torch.tensor(p), *(torch.randn(3, 3, requires_grad=True) for _ in "xw")]
            for p in (True, False, True, False)
        ),
    )
    assert reasons() == []


def test_a_condition_that_is_computed():
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x.relu(), lambda x: -x, (x,))

    same_as_cpu(f, [torch.ones(3)], [-torch.ones(3)])


def test_a_branch_whose_size_is_data_runs_by_itself(reasons):
    def f(p, x):
        return torch.cond(
            p, lambda x: x.nonzero().sum() + x.sum().long(), lambda x: x.sum().long(), (x,)
        )

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(f, fullgraph=True)
        compiled(torch.tensor(True).to("tpu"), torch.ones(3, device="tpu"))
    for p in (True, False):
        x = torch.tensor([0.0, 2, 3])
        assert_close(compiled(torch.tensor(p).to("tpu"), x.to("tpu")).cpu(), f(torch.tensor(p), x))
    assert any("such nodes" in r or "own code" in r or "op by op" in r for r in reasons())


# -- scan and map ----------------------------------------------------------------------------------


def test_scan_and_its_gradients(reasons):
    def f(c, xs, w):
        return scan(lambda c, x: (c * w + x, (c + x.sin()) @ w), c, xs, dim=0)

    shapes = (3, 3), (6, 3, 3), (3, 3)
    same_as_cpu(
        f,
        *([(torch.randn(s) * 0.3).requires_grad_() for s in shapes] for _ in range(3)),
        rtol=1e-4,
        atol=1e-5,
    )
    assert reasons() == []


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_along_another_dim(reverse):
    def f(c, xs):
        return scan(lambda c, x: (c + x, c * 2), c, xs, dim=1, reverse=reverse)

    same_as_cpu(f, [torch.randn(3), torch.randn(3, 5)])


def test_a_scan_is_recorded_as_one_op():
    sizes = []
    for length in (4, 64):
        xs = torch.randn(length, 3, device="tpu")
        torch._dynamo.reset()
        f = torch.compile(lambda xs: scan(lambda c, x: (c + x, c.sin()), xs[0], xs, dim=0))
        f(xs)
        before = _C.counters()["nodes"]
        f(xs)
        sizes.append(_C.counters()["nodes"] - before)
    assert sizes[0] == sizes[1]


def test_map_and_its_gradients(reasons):
    def f(xs, w):
        return map_over(lambda x, w: (x @ w).relu() + x.sum(), xs, w)

    same_as_cpu(
        f,
        *(
            [torch.randn(5, 3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)]
            for _ in range(3)
        ),
        rtol=1e-4,
        atol=1e-5,
    )
    assert reasons() == []


def test_associative_scan_takes_steps_of_logarithmic_depth():
    def f(x, y):
        return associative_scan(
            lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, y), 0, combine_mode="generic"
        )

    same_as_cpu(f, [torch.rand(64, 3), torch.rand(64, 3)], [torch.rand(64, 3), torch.rand(64, 3)])


# -- one in another --------------------------------------------------------------------------------


def test_a_branch_in_a_loop(reasons):
    def f(x, n):
        def step(i, x):
            odd = (i % 2).bool()
            return i + 1, torch.cond(odd, lambda x: x * 2, lambda x: x + 1, (x,))

        zero = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, x: i < n, step, (zero, x))

    same_as_cpu(f, *([torch.randn(4), torch.tensor(n)] for n in (5, 2)))
    assert reasons() == []


def test_a_scan_in_a_scan(reasons):
    def f(c, xs):
        def rows(c, row):
            inner, ys = scan(lambda c, x: (c * 0.5 + x, c + x), c, row, dim=0)
            return inner, ys.sum() + inner

        return scan(rows, c, xs, dim=0)

    same_as_cpu(f, *([torch.randn(()), torch.randn(4, 3)] for _ in range(2)))
    assert reasons() == []


def test_a_loop_in_a_scan(reasons):
    def f(c, xs):
        def step(c, x):
            (c,) = while_loop(lambda c: c < 10, lambda c: (c * 2 + x,), (c + x,))
            return c - 10, c * 1.0

        return scan(step, c, xs, dim=0)

    same_as_cpu(f, *([torch.rand(()) + 1, torch.rand(4)] for _ in range(2)))
    assert reasons() == []


# -- random numbers --------------------------------------------------------------------------------


def test_each_run_of_a_scan_draws_what_eager_mode_draws(reasons):
    def f(xs):
        return scan(lambda c, x: (c + 1, torch.rand_like(x) + torch.rand_like(x)), xs[0], xs, dim=0)

    xs = torch.zeros(6, 8, device="tpu")
    torch.manual_seed(3)
    _, got = torch.compile(f, fullgraph=True)(xs)
    after = torch.rand(4, device="tpu")
    torch.manual_seed(3)
    want = torch.stack(
        [torch.rand(8, device="tpu") + torch.rand(8, device="tpu") for _ in range(6)]
    )
    assert_close(got, want, rtol=0, atol=0)
    assert_close(after, torch.rand(4, device="tpu"), rtol=0, atol=0)
    assert reasons() == []


def test_runs_of_a_loop_draw_other_numbers(reasons):
    def f(x):
        zero = torch.zeros((), dtype=torch.int64, device=x.device)

        def step(i, x):
            return i + 1, torch.cat([x[8:], torch.rand_like(x[:8])])

        return while_loop(lambda i, x: i < 6, step, (zero, x))[1]

    x = torch.zeros(48, device="tpu")
    compiled = torch.compile(f, fullgraph=True)
    torch.manual_seed(3)
    drawn = torch.cat([compiled(x), compiled(x), torch.rand(48, device="tpu")])
    assert len(drawn.cpu().unique()) == 144
    torch.manual_seed(3)
    got = compiled(x)
    torch.manual_seed(3)
    want = torch.cat([torch.rand(8, device="tpu") for _ in range(6)])
    assert_close(got, want, rtol=0, atol=0)
    assert reasons() == []


def test_a_condition_that_draws():
    def f(n, x):
        def go_on(n, x):
            return (torch.rand_like(x) < 0.9).all()

        return while_loop(go_on, lambda n, x: (n + 1, x + 1), (n, x))[0]

    torch.manual_seed(5)
    compiled = torch.compile(f, fullgraph=True)
    n, x = torch.tensor(0, device="tpu"), torch.zeros((), device="tpu")
    lengths = {int(compiled(n, x)) for _ in range(20)}
    assert len(lengths) > 3


# -- assertions ------------------------------------------------------------------------------------


def test_a_bad_index_in_a_loop_is_told_with_its_line():
    def f(table, x, n):
        def step(i, x):
            return i + 1, x + table[i[None]][0]

        zero = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, x: i < n, step, (zero, x))[1]

    table, x = torch.randn(5, 3), torch.randn(3)
    compiled = torch.compile(f, fullgraph=True)
    good = compiled(table.to("tpu"), x.to("tpu"), torch.tensor(5, device="tpu"))
    assert_close(good.cpu(), x + table.sum(0), rtol=1e-5, atol=1e-5)
    bad = compiled(table.to("tpu"), x.to("tpu"), torch.tensor(7, device="tpu"))
    with pytest.raises(IndexError, match="index 5 is out of bounds") as error:
        bad.cpu()
    assert "test_control_flow.py" in str(error.value)
    with pytest.raises(IndexError):
        bad.cpu()
    assert_close((good * 1).cpu(), good.cpu())


@pytest.mark.parametrize("taken", [True, False])
def test_a_bad_index_counts_in_the_branch_that_is_taken(taken):
    def f(p, table, i):
        return torch.cond(p, lambda t, i: t[i], lambda t, i: t.sum() + i, (table, i))

    args = torch.tensor(taken), torch.randn(4), torch.tensor([9])
    result = torch.compile(f, fullgraph=True)(*on_tpu(args))
    if taken:
        with pytest.raises(IndexError, match="index 9 is out of bounds"):
            result.cpu()
    else:
        assert_close(result.cpu(), args[1].sum() + args[2])


def test_a_bad_index_in_a_condition_is_told():
    def f(table, i):
        return while_loop(lambda i: table[i[None]][0] > 0, lambda i: (i + 1,), (i,))[0]

    compiled = torch.compile(f, fullgraph=True)
    i = torch.tensor(0, device="tpu")
    assert compiled(torch.tensor([1.0, 1, 0], device="tpu"), i).item() == 2
    with pytest.raises(IndexError, match="index 2 is out of bounds"):
        compiled(torch.tensor([1.0, 0], device="tpu") + 1, i).item()


# -- programs --------------------------------------------------------------------------------------


def test_the_verifier_accepts_the_modules(tmp_path):
    pytest.importorskip("jaxlib")
    run_python(
        f"""
        import torch, torch_tpu, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_control_flow as t
        t.test_a_branch_in_a_loop(lambda: [])
        t.test_scan_and_its_gradients(lambda: [])
        t.test_runs_of_a_loop_draw_other_numbers(lambda: [])
        t.test_a_bad_index_in_a_loop_is_told_with_its_line()
        """,
        TORCH_TPU_DUMP_DIR=str(tmp_path),
        PYTHONPATH=str(Path(__file__).parents[1]),
    )
    tool = Path(__file__).parents[2] / "tools" / "verify_modules.py"
    done = subprocess.run(
        [sys.executable, tool, tmp_path], capture_output=True, text=True, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    text = "".join(p.read_text() for p in tmp_path.glob("*.mlir"))
    assert "stablehlo.while" in text
    assert "stablehlo.if" in text


def test_compile_ahead_traces_control_flow():
    from torch_tpu.aot import _trace

    program = _trace.trace(power, (torch.randn(4), torch.tensor(3)))
    assert program.text.count("stablehlo.while") == 1

    def f(p, c, xs):
        _, ys = scan(lambda c, x: (c + x, c * 2), c, xs, dim=0)
        return torch.cond(p, lambda y: y.sin(), lambda y: y.cos(), (ys,))

    text = _trace.trace(f, (torch.tensor(True), torch.randn(3), torch.randn(5, 3))).text
    assert text.count("stablehlo.while") == 1
    assert text.count("stablehlo.if") == 1


def test_compile_ahead_traces_gradients_of_control_flow():
    """The backward pass runs on another thread, which traces bodies, too."""
    from torch_tpu.aot import _trace

    def f(p, w, xs):
        def row(c, x):
            return c @ w + x, torch.cond(p, lambda c: c.sin(), lambda c: c * 2, (c,))

        c, ys = scan(row, xs[0], xs, dim=0)
        return (ys * ys).sum() + c.sum()

    args = torch.tensor(True), torch.randn(4, 4, requires_grad=True), torch.randn(6, 4, 4)
    for g in (f, torch.compile(f, fullgraph=True)):
        torch._dynamo.reset()
        program = _trace.trace(g, args, mode="train")
        assert program.outputs == ["loss", "grad of args[1]"]
        assert program.text.count("stablehlo.while") == 2
        assert program.text.count("stablehlo.if") == 2


@pytest.mark.tpu_aot
@pytest.mark.skipif(
    not any(Path(p, "libtpu").is_dir() for p in sys.path) and "TPU_LIBRARY_PATH" not in os.environ,
    reason="libtpu is not installed",
)
def test_libtpu_compiles_control_flow():
    from torch_tpu import aot

    def f(p, n, c, xs, table):
        def row(c, x):
            noisy = torch.cond(p, lambda c: c + torch.rand_like(c), lambda c: c * 2, (c,))
            return noisy + x, noisy @ table

        c, ys = scan(row, c, xs, dim=0)
        zero = torch.zeros((), dtype=torch.int64, device=xs.device)
        return while_loop(
            lambda i, y: i < n, lambda i, y: (i + 1, y + table[i[None] % 8]), (zero, ys.sum(0))
        )

    args = torch.tensor(True), torch.tensor(3), torch.randn(8, 128), torch.randn(6, 8, 128)
    report = aot.compile(f, (*args, torch.randn(128, 128)), topology="v6e:1x1")
    assert report.fits


# -- flex_attention --------------------------------------------------------------------------------


def attention(q, k, v, bias=None, mask=None):
    """What flex_attention computes, and the log of its sums."""
    groups = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.mT / q.size(-1) ** 0.5
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def heads(queries, keys, length=24, width=8):
    return [torch.randn(2, h, length, width, requires_grad=True) for h in (queries, keys, keys)]


def same_attention(f, want, args):
    """Results and gradients of `f` compiled on tpu are those of `want` on the CPU."""
    compiled = torch.compile(f, fullgraph=True)
    for n in range(2):
        mine = on_tpu(args)
        got, count = counted(lambda mine=mine: compiled(*mine))
        if n:
            assert count == {"executes": 1, "compiles": 0, "bytes_d2h": 0}
    expected = want(*args)
    got, expected = _leaves(got), _leaves(expected)
    tangents = [torch.randn_like(e) for e in expected]
    assert_close(_cpu(got), _detached(expected), rtol=1e-4, atol=1e-5)
    made, wanted = (
        torch.autograd.grad(o, [a for a in i if a.requires_grad], t)
        for o, i, t in ((got, mine, on_tpu(tangents)), (expected, args, tangents))
    )
    assert_close(_cpu(made), _detached(wanted), rtol=1e-3, atol=1e-4)


def test_scores_with_a_captured_bias():
    from torch.nn.attention.flex_attention import flex_attention

    def f(q, k, v, bias):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h, i, j])

    args = [*heads(4, 4), torch.randn(4, 24, 24, requires_grad=True)]
    same_attention(f, lambda q, k, v, bias: attention(q, k, v, bias)[0], args)


def test_groups_of_queries_and_the_log_of_the_sums():
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    def f(q, k, v):
        out, aux = flex_attention(q, k, v, enable_gqa=True, return_aux=AuxRequest(lse=True))
        return out, aux.lse

    same_attention(f, attention, heads(4, 2))


def test_a_block_mask():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(b, h, i, j):
        return i >= j

    mask = create_block_mask(causal, None, None, 256, 256, device="tpu")

    def f(q, k, v):
        return flex_attention(q, k, v, block_mask=mask)

    below = torch.ones(256, 256).tril().bool()
    same_attention(f, lambda q, k, v: attention(q, k, v, mask=below)[0], heads(2, 2, 256))
