"""PyTorch's operator database compiled on tpu against eager on tpu: results and gradients.

Every eighth operator by default, each with a sample; TORCH_TPU_COMPILE_EVERY=1 takes all,
TORCH_TPU_COMPILE_SAMPLES more samples. Random operators draw the numbers that they draw in eager
mode.

The same with all sizes as symbols that are rounded up, and NaN or nonsense as padding: nothing of
it may reach a result. Every 24th operator by default, TORCH_TPU_PADDED_EVERY=1 takes all.
"""

import os

import pytest
import torch
from ops.expectations import UNDEFINED
from ops.test_op_database import full_name, gradients, tensors, to_device
from torch.testing._internal.common_methods_invocations import op_db

from torch_tpu import _C, _padding

# A value of the device decides the number of results, which fake tensors cannot tell.
READS = {"item", "tensor_split"}

EVERY = int(os.environ.get("TORCH_TPU_COMPILE_EVERY", "8"))
PADDED_EVERY = int(os.environ.get("TORCH_TPU_PADDED_EVERY", "24"))
# Torch itself hands symbols to parameters that can only be numbers, or the pointers of symbols.
NUMBERS_ONLY = {"nn.functional.rms_norm", "max_pool2d_with_indices_backward"}

SAMPLES = int(os.environ.get("TORCH_TPU_COMPILE_SAMPLES", "1"))


def same(got, want):
    got, want = tensors(got), tensors(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.device == w.device
        torch.testing.assert_close(
            g.detach(), w.detach(), rtol=1e-4, atol=1e-5, equal_nan=True, check_stride=False
        )


@pytest.mark.parametrize("op", op_db[::EVERY], ids=full_name)
def test_compiled_is_as_eager(op):
    dtype = torch.float32 if op.supports_dtype(torch.float32, "cpu") else torch.int64
    if not op.supports_dtype(dtype, "cpu"):
        pytest.skip("neither float32 nor int64 on the CPU")
    if op.name in UNDEFINED | READS:
        pytest.skip("its results are what nobody has written, or depend on values")
    grad = dtype is torch.float32 and op.supports_autograd
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
    samples = samples[:: max(1, -(-len(samples) // SAMPLES))]
    done = [check(op, sample, grad) for sample in samples]
    if not any(done):
        pytest.skip("the device accepts no sample")


@pytest.fixture
def nonsense(monkeypatch):
    """Sizes are rounded up, more than they have to be, and nothing is known of what pads them."""
    plain = _C.padded

    def padded(t, numel):
        flat = plain(t, numel)
        fill = float("nan") if t.dtype.is_floating_point or t.dtype.is_complex else 77
        beyond = torch.arange(numel, device=t.device) >= t.numel()
        return flat.masked_fill(beyond, fill)

    monkeypatch.setattr(_C, "padded", padded)
    monkeypatch.setattr(_padding.Buckets, "of", lambda self, size: size // 8 * 8 + 16)


@pytest.mark.parametrize("op", op_db[::PADDED_EVERY], ids=full_name)
def test_padded_is_as_eager(op, nonsense):
    if op.name in UNDEFINED | READS | NUMBERS_ONLY or not op.supports_dtype(torch.float32, "cpu"):
        pytest.skip(
            "not of float32, or its results depend on values or are what nobody has written"
        )
    samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd))
    if not any(check(op, s, op.supports_autograd, dynamic=True) for s in samples[:SAMPLES]):
        pytest.skip("the device accepts no sample")


def check(op, sample, grad, **options):
    """False where eager mode refuses the sample."""

    def moved():
        return to_device((sample.input, sample.args, sample.kwargs), grad, op.name)

    def eager(args):
        first, rest, named = args
        return op(first, *rest, **named)

    compiled = torch.compile(eager, **options)
    try:
        torch.manual_seed(1)
        want = eager(moved())
    except Exception:
        return False
    for _ in range(2):
        torch.manual_seed(1)
        same(compiled(moved()), want)
    if not grad:
        return True
    try:
        torch.manual_seed(1)
        want = gradients(op, sample, moved())
    except Exception:
        return True
    torch.manual_seed(1)
    same(
        gradients(lambda first, *rest, **named: compiled((first, rest, named)), sample, moved()),
        want,
    )
    return True
