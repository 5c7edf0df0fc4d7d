"""Late errors: what they name, and that the device goes on."""

import os
import re
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from helpers import exact, run_python

from torch_tpu.mode import EagerMode, set_eager_mode

pytestmark = pytest.mark.usefixtures("full_compiles")

FUSED, STRICT = EagerMode.DEFER_AND_FUSE, EagerMode.DEFER_NEVER
HERE = os.path.basename(__file__)


def line_of(text):
    """Number of the line of this file that ends with the comment `text`."""
    with open(__file__) as lines:
        return next(i for i, line in enumerate(lines, 1) if line.rstrip().endswith("# " + text))


def works():
    x = torch.ones(3).to("tpu")
    exact(x + 1, torch.full((3,), 2.0))


# ---- At once, on the user's line.


def test_a_bad_shape_is_told_when_recorded(mode):
    x = torch.ones(2, 3).to("tpu")
    with pytest.raises(RuntimeError) as error:
        x @ x
    text = str(error.value)
    assert re.search(r"mm\(self: Float\[2, 3\], mat2: Float\[2, 3\]\)", text), text
    works()


ALIKE = {
    "add": lambda x: x + torch.ones(4).to(x.device),
    "dim": lambda x: x.sum(5),
    "cat": lambda x: torch.cat([x, x.new_ones(3, 3)], 1),
    "view": lambda x: x.view(5),
    "expand": lambda x: x.expand(4, 4),
    "dtype": lambda x: torch.bitwise_and(x, x),
    "cast": lambda x: x.long().add_(0.5),
    "select": lambda x: x[7],
    "inplace": lambda x: x.add_(x.new_ones(5, 2, 3)),
    "internal": lambda x: x[:1].expand(4, 3).add_(1),
    "overlap": lambda x: x.view(-1)[1:].add_(x.view(-1)[:-1]),
    "out": lambda x: torch.add(x, x, out=x.new_empty(2, 3, dtype=torch.int32)),
    "index": lambda x: x[x],
    "scalar": lambda x: x.item(),
    "bool": lambda x: bool(x),
    "leaf": lambda x: x.requires_grad_().add_(1),
    "grad": lambda x: (x.clone().requires_grad_() * 2).backward(),
}


@pytest.mark.parametrize("name", ALIKE)
def test_the_class_is_that_of_the_cpu(name):
    with pytest.raises(Exception) as cpu:
        ALIKE[name](torch.ones(2, 3))
    with pytest.raises(type(cpu.value)) as mine:
        ALIKE[name](torch.ones(2, 3).to("tpu"))
    assert type(mine.value) is type(cpu.value)
    works()


NUMBERS = {
    "normal_": lambda x: x.normal_(0, -1.5),
    "normal_ nan": lambda x: x.normal_(0, float("nan")),
    "normal_ of none": lambda x: x[:0].normal_(0, -1),
    "normal": lambda x: torch.normal(x, -1.5),
    "normal complex": lambda x: x.cfloat().normal_(0, -1),
    "uniform_": lambda x: x.uniform_(2, 1),
    "uniform_ fractions": lambda x: x.uniform_(2.5, 1.25),
    "uniform_ inf": lambda x: x.uniform_(float("-inf"), 1),
    "uniform_ nan": lambda x: x.uniform_(0, float("nan")),
    "uniform_ half": lambda x: x.half().uniform_(0, 1e6),
    "uniform_ wide": lambda x: x.uniform_(-3e38, 3e38),
    "exponential_": lambda x: x.exponential_(-1.5),
    "exponential_ zero": lambda x: x.exponential_(0),
    "bernoulli_": lambda x: x.bernoulli_(1.5),
    "bernoulli": lambda x: torch.bernoulli(x, -0.5),
    "geometric_": lambda x: x.geometric_(1.5),
    "cauchy_": lambda x: x.cauchy_(0, -1.5),
    "log_normal_": lambda x: x.log_normal_(0, -1.5),
    "random_": lambda x: x.random_(2, 1),
    "random_ range": lambda x: x.short().random_(2**40, 2**41),
    "power": lambda x: x.long() ** -5,
    "norm": lambda x: torch.linalg.vector_norm(x[:0], -1.5),
    "slope": lambda x: torch.ops.aten.leaky_relu_backward(x, x, -1.0, True),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_bad_number_is_told_at_the_call_with_its_value(name, mode):
    with pytest.raises(RuntimeError) as cpu:
        NUMBERS[name](torch.ones(2, 3))
    x = torch.ones(2, 3).to("tpu")
    with pytest.raises(RuntimeError, match=re.escape(str(cpu.value).split(" File an issue")[0])):
        NUMBERS[name](x)
    exact(x, torch.ones(2, 3))
    works()


def test_a_bad_probability_of_dropout_is_told_at_the_call():
    x = torch.ones(3).to("tpu")
    for p in (1.5, -0.5):
        with pytest.raises(RuntimeError, match=f"between 0 and 1, but got {p}"):
            torch.native_dropout(x, p, True)
    works()


def test_a_bad_number_is_told_when_the_program_is_known():
    x = torch.ones(3).to("tpu")
    x.normal_(0, 1), x.normal_(0, 2)
    with pytest.raises(RuntimeError, match="normal expects std >= 0.0, but found std -3"):
        x.normal_(0, -3)


def test_mixed_devices_are_refused():
    x = torch.ones(3).to("tpu")
    for f in (
        lambda: x + torch.ones(3),
        lambda: torch.ones(3).add_(x),
        lambda: x.add_(torch.ones(3)),
        lambda: torch.cat([x, torch.ones(2)]),
        lambda: F.linear(torch.ones(3, 3), x),
        lambda: torch.where(x > 0, x, torch.ones(3)),
    ):
        with pytest.raises(RuntimeError, match=r"device"):
            f()
    assert (x + torch.tensor(2.0)).sum().item() == 9  # a number in a tensor is none of it


def test_a_refused_call_changes_nothing(mode):
    x = torch.arange(6.0).to("tpu")
    y = x[1:4]
    version = x._version
    for bad in (lambda: y.add_(torch.ones(5).to("tpu")), lambda: torch.mm(x, x, out=y)):
        with pytest.raises(RuntimeError):
            bad()
    assert x._version == version
    exact(x, torch.arange(6.0))


# ---- Indices: told at the next wait.

# name: what to do with values [5, 2] and indices [3], and what the CPU calls a bad index.
INDEX_ERRORS = {
    "getitem": (lambda x, i: x[i], "index 77 is out of bounds for dimension 0 with size 5"),
    "setitem": (lambda x, i: x.clone().index_put_((i,), x.new_ones(3, 2)), "index 77 is out of b"),
    "index_select": (lambda x, i: x.index_select(0, i), "index out of range in self"),
    "index_add": (lambda x, i: x[:, 0].clone().index_add_(0, i, x[:3, 0]), "index out of range in"),
    "index_add rows": (lambda x, i: x.clone().index_add_(0, i, x[:3]), "index 77 is out of bounds"),
    "index_copy": (lambda x, i: x.clone().index_copy_(0, i, x[:3]), "index_copy_(): index 77 is"),
    "index_fill": (lambda x, i: x.clone().index_fill_(0, i, 2.0), "index 77 is out of bounds for"),
    "index_reduce": (
        lambda x, i: x.clone().index_reduce_(0, i, x[:3], "amax"),
        "index out of range in self",
    ),
    "take": (
        lambda x, i: x.take(i),
        "out of range: tried to access index 77 on a tensor of 10 elements.",
    ),
    "put": (lambda x, i: x.clone().put_(i, x[:3, 0]), "out of range: tried to access index 77 on"),
    "embedding": (lambda x, i: F.embedding(i, x), "index out of range in self"),
    "embedding_bag": (
        lambda x, i: F.embedding_bag(i, x, i.new_zeros(1), mode="max"),
        "Expected idx >= 0 && idx < num_embeddings but found idx to be 77",
    ),
    "gather": (
        lambda x, i: x.gather(0, i[:, None].expand(3, 2)),
        "index 77 is out of bounds for dimension 0 with size 5",
    ),
    "scatter": (
        lambda x, i: x.clone().scatter_(0, i[:, None].expand(3, 2), x[:3]),
        "index 77 is out of bounds for dimension 0 with size 5",
    ),
    "scatter number": (
        lambda x, i: x.clone().scatter_(0, i[:, None], 1.0),
        "index 77 is out of bounds for dimension 0 with size 5",
    ),
    "scatter_add": (
        lambda x, i: x.clone().scatter_add_(0, i[:, None], x[:3]),
        "index 77 is out of bounds for dimension 0 with size 5",
    ),
    "scatter_reduce": (
        lambda x, i: x.clone().scatter_reduce_(0, i[:, None], x[:3], "amax"),
        "index 77 is out of bounds for dimension 0 with size 5",
    ),
    "nll_loss": (lambda x, i: F.nll_loss(x[:3].expand(3, 2), i), "Target 77 is out of bounds."),
    "cross_entropy": (lambda x, i: F.cross_entropy(x[:3], i), "Target 77 is out of bounds."),
    "max_unpool": (
        lambda x, i: F.max_unpool1d(x[None, :3, 0], i[None], 2),
        "Found an invalid max index: 77 (output volumes are of size 6x1)",
    ),
}


@pytest.mark.parametrize("name", INDEX_ERRORS)
@pytest.mark.parametrize("wait", ["read", "synchronize"])
def test_an_index_out_of_range_raises_at_the_next_wait(name, wait, mode):
    call, phrase = INDEX_ERRORS[name]
    x, i = torch.arange(10.0).reshape(5, 2), torch.tensor([0, 77, 1])
    with pytest.raises((IndexError, RuntimeError), match=re.escape(phrase)) as cpu:
        call(x, i)
    x, i = x.to("tpu"), i.to("tpu")
    with pytest.raises(type(cpu.value), match=re.escape(phrase)) as error:
        y = call(x, i)  # here
        y.cpu() if wait == "read" else torch.tpu.synchronize()
    assert type(error.value) is type(cpu.value)
    text = str(error.value)
    assert "77" in text, text
    if name not in ("nll_loss", "cross_entropy", "max_unpool", "embedding_bag"):
        assert HERE in text, text
    # Once told it is over, and nothing that came before is lost.
    torch.tpu.synchronize()
    exact(x, torch.arange(10.0).reshape(5, 2))
    works()


@pytest.mark.parametrize("pivots", [[0, 1], [9, 1], [-3, 1]])
def test_pivots_out_of_range(pivots):
    def solve(device):
        given = torch.tensor(pivots, dtype=torch.int32).to(device)
        return torch.linalg.lu_solve(torch.eye(2).to(device), given, torch.eye(2).to(device)).cpu()

    with pytest.raises(RuntimeError) as cpu:
        solve("cpu")
    with pytest.raises(RuntimeError, match=re.escape(str(cpu.value))):
        solve("tpu")
    works()


def test_an_index_error_names_the_line_that_made_it():
    x = torch.ones(4).to("tpu")
    i = torch.tensor([9]).to("tpu")
    with set_eager_mode(FUSED):
        y = x[i]  # the index
        z = y + 1
        with pytest.raises(IndexError, match=f"{HERE}:{line_of('the index')} in test_an_index"):
            z.sum().item()


def test_an_index_error_names_its_own_line_when_the_program_is_known(mode):
    x = torch.ones(4).to("tpu")
    for k in (1, 2):
        x[torch.tensor([k]).to("tpu")].cpu()
    bad = torch.tensor([33]).to("tpu")
    with pytest.raises(IndexError, match=f"{HERE}:{line_of('another line')} in"):
        x[bad].cpu()  # another line


def test_lookups_that_nobody_waits_for_do_not_pile_up():
    out = run_python("""
        import resource, torch
        x = torch.ones(4, 2).to("tpu")
        i = torch.tensor([3, 1]).to("tpu")
        def loop(n):
            for _ in range(n):
                x[i]
        loop(2000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        loop(6000)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2000)
        # And what was broken on the way is still told.
        x[torch.tensor([44, 1]).to("tpu")]
        loop(2000)
        try:
            torch.tpu.synchronize()
        except IndexError as error:
            print("44" in str(error))
        """)
    assert out == "True\nTrue\n"


def test_a_wrong_index_touches_nothing_else(mode):
    x = torch.zeros(4, 2).to("tpu")
    with pytest.raises(IndexError):
        x[torch.tensor([2, 11]).to("tpu")] = 1.0
        torch.tpu.synchronize()
    assert x.cpu()[[0, 1]].abs().sum() == 0


READS = {
    "getitem": lambda x, i: x[i],
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "take": lambda x, i: x.take(i),
    "embedding": lambda x, i: F.embedding(i, x),
}
WRITES = {
    "index_put": lambda x, i: x.index_put_((i,), x.new_ones(())),
    "accumulated": lambda x, i: x.index_put_((i,), x.new_ones(()), accumulate=True),
    "two indices": lambda x, i: x.index_put_((i, i * 0), x.new_ones(())),
    "index_add": lambda x, i: x.index_add_(0, i, x.new_ones(len(i), 2)),
    "index_copy": lambda x, i: x.index_copy_(0, i, x.new_ones(len(i), 2)),
    "index_fill": lambda x, i: x.index_fill_(0, i, 1.0),
    "index_reduce": lambda x, i: x.index_reduce_(0, i, x.new_ones(len(i), 2), "amax"),
    "scatter": lambda x, i: x.scatter_(0, i[:, None].expand(len(i), 2), 1.0),
    "scatter_add": lambda x, i: x.scatter_add_(0, i[:, None], x.new_ones(len(i), 1)),
    "scatter_reduce": lambda x, i: x.scatter_reduce_(0, i[:, None], x.new_ones(len(i), 1), "mean"),
    "put": lambda x, i: x.view(-1)[:4].put_(i, x.new_ones(len(i))),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("late", [STRICT, FUSED])
def test_what_depends_on_a_wrong_index_is_never_read(name, late):
    torch.tpu.eager_mode = late
    x, good = torch.ones(4, 2).to("tpu"), torch.ones(3).to("tpu")
    y = READS[name](x, torch.tensor([2, 11]).to("tpu"))
    total = (y * 2).sum() + good.sum()
    other = good + 1
    for _ in range(2):
        with pytest.raises((IndexError, RuntimeError), match="11"):
            total.item()
    with pytest.raises((IndexError, RuntimeError), match="11"):
        y.cpu()
    # Told once, and of nothing else.
    torch.tpu.synchronize()
    assert other.tolist() == [2, 2, 2]
    good += 1
    assert good.tolist() == [2, 2, 2]


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("late", [STRICT, FUSED])
def test_what_is_written_by_a_wrong_index_is_left_out(name, late):
    torch.tpu.eager_mode = late
    want = torch.zeros(4, 2)
    WRITES[name](want, torch.tensor([2]))
    for wrong in (11, -11, 4, 2**40):
        x = torch.zeros(4, 2).to("tpu")
        with pytest.raises((IndexError, RuntimeError), match=str(wrong)):
            WRITES[name](x, torch.tensor([2, wrong]).to("tpu"))
            torch.tpu.synchronize()
        exact(x, want)


def test_an_error_is_told_to_the_thread_that_made_it():
    x = torch.ones(4).to("tpu")
    found = []

    def work(index):
        try:
            found.append((index, (x[torch.tensor([index]).to("tpu")] * 2).tolist()))
        except IndexError:
            found.append((index, "IndexError"))

    for _ in range(10):
        threads = [threading.Thread(target=work, args=(i,)) for i in (1, 9, 2, 8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert sorted(found, key=str) == sorted(
        [(1, [2.0]), (2, [2.0]), (8, "IndexError"), (9, "IndexError")] * 10, key=str
    )
    torch.tpu.synchronize()


def test_weights_survive_a_step_with_a_wrong_token():
    embedding = torch.nn.Embedding(3, 2).to("tpu")
    before = embedding.weight.detach().cpu()
    for tokens in ([0, 1], [0, 7], [2, 1]):
        i = torch.tensor(tokens).to("tpu")
        try:
            embedding.zero_grad()
            embedding(i).sum().backward()
            torch.tpu.synchronize()
        except IndexError as error:
            assert "7" in str(error)
        else:
            want = torch.zeros(3, 2)
            want[tokens] = 1.0
            exact(embedding.weight.grad, want)
    exact(embedding.weight.detach(), before)


# ---- Memory, which runs out when the window runs: in a process of its own, with a limit.

LIMITED = """
    import torch
    from torch_tpu.mode import EagerMode, set_eager_mode
    MiB = 2 ** 20
    keep = torch.zeros(24, 1024, 256).to("tpu")          # 24 MiB
    small = torch.zeros(3, 1024, 256).to("tpu")          # 3 MiB
    torch.tpu.synchronize()
"""


def test_out_of_memory_in_a_window_names_the_op():
    out = run_python(
        LIMITED
        + """
    with set_eager_mode(EagerMode.DEFER_AND_FUSE):
        x = small + 1
        def grow(x):
            return x.repeat(20, 1, 1)
        y = grow(x)
        try:
            y.sum().item()
            y.cpu()
        except torch.OutOfMemoryError as error:
            print(error)
    print("then", (small + 1).mean().item(), torch.tpu.memory_stats()["num_ooms"])
    """,
        TORCH_TPU_MEMORY_LIMIT="64M",
    )
    text, after = out.split("then")
    for part in (
        r"out of memory on tpu:0",
        r"needs \d+(\.\d)? MiB",
        r"of 64(\.0)? MiB are free",
        r"largest live tensors: float32\[24, 1024, 256\] \(24(\.0)? MiB\), float32\[3, 1024, 256\]",
        r"in aten::repeat\(float32\[3, 1024, 256\]\) at <string>:12 in grow",
        r"one of \d deferred ops, run because of: read at <string>:15 in <module>",
    ):
        assert re.search(part, text), (part, text)
    assert after == " 1.0 1\n"


@pytest.mark.parametrize("mode_name", ["DEFER_NEVER", "DEFER_NEVER_AND_LAUNCH_BLOCKING"])
def test_out_of_memory_in_strict_modes_is_on_the_line(mode_name):
    out = run_python(
        LIMITED
        + f"""
    with set_eager_mode(EagerMode.{mode_name}):
        try:
            small.repeat(20, 1, 1)
        except torch.OutOfMemoryError as error:
            print(type(error).__module__, type(error).__name__, error)
        try:
            torch.zeros(50 * MiB, dtype=torch.uint8).to("tpu")
        except torch.OutOfMemoryError as error:
            print(error)
        del keep
        print(torch.zeros(50 * MiB, dtype=torch.uint8).to("tpu").shape[0] // MiB)
    """,
        TORCH_TPU_MEMORY_LIMIT="64M",
    )
    first, *rest, last = out.strip().split("\n")
    assert "torch" in first and "OutOfMemoryError" in first and "needs 60" in first, out
    assert any("a copy needs 50" in line and "are free" in line for line in rest), out
    assert last == "50"


def test_only_what_must_fail_in_a_window_fails():
    out = run_python(
        LIMITED
        + """
    torch.tpu.eager_mode = EagerMode.DEFER_AND_FUSE
    a = small + 1
    big = a.repeat(19, 1, 1)
    small.mul_(2)
    said = []
    for t in (a, big, small, a + 1, small[0]):
        try:
            t.cpu()
            said.append("no error")
        except torch.OutOfMemoryError:
            said.append("memory")
    print(said)
    print(a.mean().item(), small.sum().item(), (torch.ones(2).to("tpu") + 1).tolist())
    """,
        TORCH_TPU_MEMORY_LIMIT="64M",
    )
    assert out == "['memory', 'memory', 'no error', 'no error', 'no error']\n1.0 0.0 [2.0, 2.0]\n"


# ---- The plugin and the environment.


def test_a_plugin_path_that_does_not_exist():
    stderr = run_python(
        "import torch; torch.ones(2).to('tpu')",
        ok=False,
        TORCH_TPU_PJRT_PLUGIN="/nowhere/plugin.so",
    )
    assert "RuntimeError" in stderr and "/nowhere/plugin.so" in stderr


def test_a_library_that_is_no_plugin():
    library = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
    stderr = run_python(
        "import torch; torch.ones(2).to('tpu')", ok=False, TORCH_TPU_PJRT_PLUGIN=library
    )
    assert "RuntimeError" in stderr and library in stderr and "GetPjrtApi" in stderr


@pytest.mark.parametrize(
    "variable, value, takes",
    [
        ("TORCH_TPU_DEFER_AND_FUSE", "perhaps", "on, off"),
        ("TORCH_TPU_FALLBACK", "always", "warn|error|quiet".replace("|", ", ")),
        ("TORCH_TPU_PLATFORM", "gpu", "auto, tpu, cpu"),
        ("TORCH_TPU_CPU_DEVICE_COUNT", "two", "a whole number"),
        ("TORCH_TPU_CPU_DEVICE_COUNT", "0", "1 to 127"),
        ("TORCH_TPU_MEMORY_LIMIT", "much", "512M"),
        ("TORCH_TPU_XLA_OPTIONS", "no_such_option=1", "no_such_option"),
    ],
)
def test_an_environment_value_that_is_none(variable, value, takes):
    code = """
        import torch, torch_tpu
        torch_tpu.get_fallback()
        print((torch.ones(2).to('tpu') + 1).tolist())
    """
    stderr = run_python(code, ok=False, **{variable: value})
    assert variable in stderr or takes in stderr, stderr
    assert "Error" in stderr and takes in stderr, stderr


def test_a_damaged_cache_file_is_replaced(tmp_path):
    code = """
        import torch
        from torch_tpu import debug
        x = torch.arange(6.).to("tpu")
        print((x * 3).sum().item(), debug.compile_count(), debug.counters()["disk_hits"])
    """
    env = {"TORCH_TPU_CACHE_DIR": str(tmp_path)}
    assert run_python(code, **env) == "45.0 2 0\n"
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    good = [f.read_bytes() for f in files]
    files[0].write_bytes(good[0][: len(good[0]) // 2])
    files[1].write_bytes(good[1][:-5] + b"xxxxx")
    assert run_python(code, **env) == "45.0 2 0\n"
    assert run_python(code, **env) == "45.0 0 2\n"


def test_a_cache_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print((torch.ones(2).to('tpu') + 1).tolist())"],
        env={**os.environ, "TORCH_TPU_CACHE_DIR": str(tmp_path / "file")},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[2.0, 2.0]\n" and done.returncode == 0
    assert done.stderr.count("disk cache is off") == 1


# ---- A failed op that writes in place leaves what was there.

KEEPS = """
    import torch
    mode = torch.tpu.EagerMode[{mode!r}]
    n = 1 << 22
    with torch.tpu.set_eager_mode(mode):
        x, kept = torch.arange(n).float().to("tpu"), torch.ones(8, device="tpu")
        view = x.view(2, -1)
        torch.tpu.synchronize()
        for write in (
            lambda: x.add_(x.repeat(8).view(8, -1).cumsum(0).flip(0)[3]),
            lambda: view[1].copy_(x.repeat(16).view(16, -1).sort(0).values[7, : n // 2]),
            lambda: torch.mul(x.repeat(16).sort().values[:n], 2, out=x),
        ):
            try:
                kept.add_(1)
                write()
                torch.tpu.synchronize()
                print("no error")
            except torch.OutOfMemoryError:
                pass
            assert torch.equal(x.cpu(), torch.arange(n).float()), x
            assert kept.tolist() in ([1.0] * 8, [2.0] * 8, [3.0] * 8, [4.0] * 8), kept
        x.add_(1)
        print(x[-1].item(), view[0, 0].item())
"""


@pytest.mark.parametrize("name", [m.name for m in EagerMode])
def test_a_failed_write_leaves_the_old_value(name):
    out = run_python(KEEPS.format(mode=name), TORCH_TPU_MEMORY_LIMIT="80M")
    assert out == f"{float(1 << 22)} 1.0\n"
