"""Shared by all tests: they run on `tpu`, whatever plugin is behind it, without CPU fallback."""

import atexit
import os
import shutil
import tempfile

# Before torch is imported. The disk cache is the session's own: workers share it, runs do not.
os.environ["TORCH_TPU_FALLBACK"] = "error"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Most tests compile many small programs once. Those of the ops and the models compile as users do.
os.environ.setdefault("TORCH_TPU_COMPILE_TIER", "fast")
if "TORCH_TPU_TEST_CACHE" not in os.environ:
    folder = tempfile.mkdtemp(prefix="torch_tpu_test_")
    os.environ["TORCH_TPU_TEST_CACHE"] = os.environ["TORCH_TPU_CACHE_DIR"] = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

import pytest
import torch

import torch_tpu
from torch_tpu import _C
from torch_tpu.mode import EagerMode, set_eager_mode


@pytest.fixture(autouse=True)
def _same_start():
    """Every test starts from one seed, strict mode and no fallback."""
    torch_tpu.set_fallback("error")
    torch.tpu.eager_mode = EagerMode.DEFER_NEVER
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(0)


@pytest.fixture
def full_compiles(monkeypatch):
    """Programs are compiled with all optimizations, in child processes, too."""
    before = os.environ["TORCH_TPU_COMPILE_TIER"]
    monkeypatch.setenv("TORCH_TPU_COMPILE_TIER", "full")
    _C.set_setting("compile_tier", "full")
    yield
    _C.set_setting("compile_tier", before)


@pytest.fixture(params=list(EagerMode), ids=["debug", "strict", "fused"])
def mode(request):
    """Run the test once in each eager mode."""
    with set_eager_mode(request.param):
        yield request.param
