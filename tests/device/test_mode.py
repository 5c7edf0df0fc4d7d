"""Eager modes, precision, counters, caches, the fallback, `torch_tpu.info`."""

import os
import re
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from helpers import exact, run_python

import torch_tpu
from torch_tpu import debug
from torch_tpu.mode import EagerMode
from torch_tpu.precision import Precision, get_precision

BLOCKING, STRICT, FUSED = EagerMode


def test_default_and_property():
    assert torch.tpu.EagerMode is EagerMode and torch.tpu.eager_mode is STRICT
    torch.tpu.eager_mode = FUSED
    assert torch.tpu.eager_mode is FUSED
    with pytest.raises(TypeError, match="EagerMode.DEFER_NEVER"):
        torch.tpu.eager_mode = 2
    with pytest.raises(TypeError, match="EagerMode.DEFER_NEVER"):
        torch.tpu.set_eager_mode("fused")


@pytest.mark.parametrize(
    "fuse, blocking, want",
    [(None, None, STRICT), ("1", None, FUSED), (None, "1", BLOCKING), ("1", "1", BLOCKING)],
)
def test_environment(fuse, blocking, want):
    out = run_python(
        "import torch; print(torch.tpu.eager_mode.name)",
        TORCH_TPU_DEFER_AND_FUSE=fuse,
        TORCH_TPU_LAUNCH_BLOCKING=blocking,
    )
    assert out.strip() == want.name


@pytest.mark.parametrize("name", ["TORCH_TPU_DEFER_AND_FUSE", "TORCH_TPU_FALLBACK"])
def test_unknown_environment_value(name):
    stderr = run_python(
        "import torch; torch.ones(1, device='tpu').add(1).item()", ok=False, **{name: "maybe"}
    )
    assert f"{name}=maybe" in stderr


def test_context_nests_and_is_restored():
    with torch.tpu.set_eager_mode(FUSED):
        with torch.tpu.set_eager_mode(BLOCKING):
            assert torch.tpu.eager_mode is BLOCKING
        with pytest.raises(ZeroDivisionError), torch.tpu.set_eager_mode(STRICT):
            _ = 1 / 0
        assert torch.tpu.eager_mode is FUSED
    assert torch.tpu.eager_mode is STRICT

    @torch.tpu.set_eager_mode(FUSED)
    def inside():
        return torch.tpu.eager_mode

    assert inside() is FUSED and torch.tpu.eager_mode is STRICT


def test_context_is_per_thread_and_property_is_not():
    seen = []
    torch.tpu.eager_mode = BLOCKING
    with torch.tpu.set_eager_mode(FUSED):
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.eager_mode))
        thread.start()
        thread.join()
    assert seen == [BLOCKING]


def test_fused_mode_defers_and_strict_does_not():
    x = torch.ones(4, device="tpu")
    torch.tpu.synchronize()
    with torch.tpu.set_eager_mode(FUSED):
        y = x * 2 + 1
        assert debug.is_deferred(y)
        text = debug.lower(y)
        assert "stablehlo.multiply" in text and "stablehlo.add" in text
        assert debug.is_deferred(y)
        exact(y, torch.full((4,), 3.0))
        assert not debug.is_deferred(y)
    assert not debug.is_deferred(x * 2)
    with pytest.raises(RuntimeError, match="nothing"):
        debug.lower(x)


def test_a_misspelt_setting_is_named_once_when_the_runtime_starts():
    code = """
        import sys, torch
        torch.tpu.is_available()
        sys.stderr.write("before\\n")
        torch.ones(2, device="tpu").sum().item()
        torch.ones(2, device="tpu").sum().item()
        raise SystemExit(1)
    """
    told = run_python(code, ok=False, TORCH_TPU_DEFER_AND_FUZE="1", TORCH_TPU_ZEBRA="1")
    before, after = told.split("before\n")
    assert "setting" not in before
    lines = [line for line in after.splitlines() if "no setting" in line]
    assert len(lines) == 2
    assert (
        "TORCH_TPU_DEFER_AND_FUZE is no setting; did you mean TORCH_TPU_DEFER_AND_FUSE?" in lines[0]
    )
    assert "TORCH_TPU_ZEBRA is no setting; python -m torch_tpu.info lists them" in lines[1]


def test_fused_chain_is_one_program():
    x = torch.ones(5, 1, 13, device="tpu")  # ops that no other test has run
    torch.tpu.synchronize()
    with torch.tpu.set_eager_mode(FUSED):
        for launches in (30, 1):  # seen for the first time it runs op by op
            before = debug.counters()["executes"]
            y = x
            for _ in range(10):
                y = (y * 2).sin() + x
            y.cpu()
            assert debug.counters()["executes"] == before + launches


def test_repeated_steps_compile_nothing(mode):
    w = torch.randn(8, 8, device="tpu", requires_grad=True)
    optimizer = torch.optim.AdamW([w], lr=0.1)

    def step():
        optimizer.zero_grad()
        (w @ w).square().mean().backward()
        optimizer.step()
        return w.sum().item()

    for _ in range(4):
        step()
    before = debug.compile_count()
    for i in range(4):
        optimizer.param_groups[0]["lr"] = 0.1 / (i + 2)
        step()
    assert debug.compile_count() == before


def test_precision_reaches_the_program():
    x = torch.ones(4, 4, device="tpu")
    torch.tpu.synchronize()

    def found():
        with torch.tpu.set_eager_mode(FUSED):
            y = x @ x
            text = debug.lower(y)
            y.cpu()
        return set(
            re.findall(r"precision (?:DEFAULT|HIGHEST|HIGH)\b|\b(?:DEFAULT|HIGHEST|HIGH)\b", text)
        )

    def last(words):
        return {word.split()[-1] for word in words}

    assert last(found()) == {"HIGHEST"}
    for name, want in (("high", "HIGH"), ("medium", "DEFAULT"), ("highest", "HIGHEST")):
        torch.set_float32_matmul_precision(name)
        assert last(found()) in ({want}, set() if want == "DEFAULT" else {want})
        assert get_precision() is Precision[want]
    with torch.tpu.precision(Precision.DEFAULT):
        assert get_precision() is Precision.DEFAULT and last(found()) in ({"DEFAULT"}, set())
        with torch.tpu.precision("high"):
            assert last(found()) == {"HIGH"}
            seen = []
            thread = threading.Thread(target=lambda: seen.append(get_precision()))
            thread.start()
            thread.join()
            assert seen == [Precision.HIGHEST]
    assert last(found()) == {"HIGHEST"}
    with pytest.raises(TypeError, match="a precision is one of"):
        torch.tpu.precision("exact")


def test_counters():
    debug.reset()
    start = debug.counters()
    names = ("compiles", "executes", "memory_hits", "disk_hits", "bytes_h2d", "bytes_d2h")
    assert all(start[name] == 0 for name in names)
    assert start["flushes"] == {} and start["fallbacks"] == {}
    torch.tpu.cache.clear(memory=True, disk=True)
    x = torch.ones(1000).to("tpu")
    y = (x + 3).cpu()
    after = debug.counters()
    assert after["compiles"] == debug.compile_count() >= 1 and after["executes"] >= 1
    assert after["bytes_h2d"] >= 4000 and after["bytes_d2h"] >= y.nbytes
    hits = after["memory_hits"]
    (x + 4).cpu()
    assert debug.counters()["memory_hits"] > hits
    with torch.tpu.set_eager_mode(FUSED):
        (x + 1).sum().item()
    assert sum(debug.counters()["flushes"].values()) >= 1
    debug.reset()
    assert debug.compile_count() == 0


def test_caches():
    x = torch.ones(3, device="tpu")
    (x * 5).cpu()
    stats = torch.tpu.cache.stats()
    assert stats["memory_entries"] >= 1 and stats["disk_entries"] >= 1 and stats["disk_bytes"] > 0
    torch.tpu.cache.clear()
    assert torch.tpu.cache.stats()["memory_entries"] == 0
    assert torch.tpu.cache.stats()["disk_entries"] == stats["disk_entries"]
    debug.reset()
    (x * 6).cpu()
    assert debug.compile_count() == 0 and debug.counters()["disk_hits"] >= 1


def test_recorded_and_dumped_modules(tmp_path):
    torch.tpu.cache.clear(memory=True, disk=True)
    x = torch.ones(6, device="tpu")
    with debug.record_modules() as seen:
        (x + x).cpu()
        torch.tpu.cache.clear(memory=True, disk=True)
        with debug.dump_modules(tmp_path / "new" / "folder") as folder:
            (x - x).cpu()
    assert any("stablehlo.add" in text for _, text in seen)
    assert not any("stablehlo.subtract" in text for _, text in seen)
    files = [file.read_text() for file in folder.glob("*.mlir")]
    assert any("stablehlo.subtract" in text for text in files)
    count = len(seen)
    torch.tpu.cache.clear(memory=True, disk=True)
    (x * x).cpu()
    assert len(seen) == count


LIBRARY = torch.library.Library("torch_tpu_test", "FRAGMENT")
LIBRARY.define("only_cpu(Tensor x, Tensor(a!) y, float scale=1) -> Tensor")


@torch.library.impl(LIBRARY, "only_cpu", "CPU")
def only_cpu(x, y, scale=1.0):
    y.add_(1)
    return x * scale


def test_fallback_modes():
    call = torch.ops.torch_tpu_test.only_cpu
    x, base = torch.arange(6.0, device="tpu").view(2, 3), torch.zeros(4, device="tpu")
    assert torch_tpu.get_fallback() == "error"
    with pytest.raises(NotImplementedError, match="torch_tpu_test::only_cpu") as error:
        call(x, base)
    assert "TORCH_TPU_FALLBACK" in str(error.value) and "set_fallback" in str(error.value)
    torch_tpu.set_fallback("warn")
    debug.reset()
    for _ in range(3):
        exact(call(x.t(), base[1:], 2.0), torch.arange(6.0).view(2, 3).t() * 2)
    exact(base, torch.tensor([0.0, 3, 3, 3]))
    assert debug.counters()["fallbacks"] == {"torch_tpu_test::only_cpu": 3}
    with pytest.raises(RuntimeError):
        torch_tpu.set_fallback("perhaps")


def test_fallback_of_a_torch_op():
    op = torch.ops.aten._test_optional_intlist  # all that users call has a lowering
    x = torch.arange(3, dtype=torch.int32)
    with pytest.raises(NotImplementedError, match="aten::_test_optional_intlist"):
        op(x.to("tpu"), [1, 2, 3])
    torch_tpu.set_fallback("warn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact(op(x.to("tpu"), [1, 2, 3]), op(x, [1, 2, 3]))


def test_fallback_warns_once_with_the_call_site(tmp_path):
    script = tmp_path / "user_script.py"
    script.write_text(
        "import torch\nx = torch.ones(3, dtype=torch.int32, device='tpu')\n"
        "for _ in range(3):\n    torch.ops.aten._test_optional_intlist(x, [1, 2, 3])\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        env={**os.environ, "TORCH_TPU_FALLBACK": "warn"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("aten::_test_optional_intlist") == 1, done.stderr
    assert "user_script.py:4" in done.stderr, done.stderr


def test_info():
    out = run_python("import sys, torch_tpu.info; sys.exit(torch_tpu.info.main())")
    for word in (
        f"torch_tpu {torch_tpu.__version__}", "plugin", "sha256", "api_version", "tpu:0",
        torch.__version__, "memory_entries", "TORCH_TPU_DEFER_AND_FUSE", "free",
    ):  # fmt: skip
        assert word in out, word
    as_module = subprocess.run(
        [sys.executable, "-m", "torch_tpu.info"], capture_output=True, text=True
    )
    assert as_module.returncode == 0 and as_module.stderr == "", as_module.stderr


def test_info_without_a_plugin(tmp_path):
    path = tmp_path / "no_plugin.so"
    path.write_bytes(b"not a library")
    done = subprocess.run(
        [sys.executable, "-m", "torch_tpu.info"],
        capture_output=True, text=True,
        env={**os.environ, "TORCH_TPU_PJRT_PLUGIN": str(path)},
    )  # fmt: skip
    assert done.returncode == 1 and done.stdout == ""
    assert str(path) in done.stderr and "Traceback" not in done.stderr


def test_a_backward_pass_keeps_what_it_inherited_when_it_sets_its_own():
    seen = []

    class Noting(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            with torch.tpu.set_eager_mode(STRICT):
                seen.append(get_precision())
            seen.append(get_precision())
            return grad

    x = torch.randn(3, device="tpu", requires_grad=True)
    with torch.tpu.precision(Precision.DEFAULT):
        Noting.apply(x).sum().backward()
    assert seen == [Precision.DEFAULT] * 2
