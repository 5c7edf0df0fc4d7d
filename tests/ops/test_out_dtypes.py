"""out= of another dtype: refused where the CPU refuses it, with its class of error."""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

NARROWING = "the CPU computes in a narrower type than PyTorch lets anybody cast to"
WORDS = "TypeError on the CPU, RuntimeError here"
ANY = "the kernel takes any dtype"
DIFFERENT = {
    "_chunk_cat": WORDS,
    "_native_batch_norm_legit": ANY,
    "bernoulli": NARROWING,
    "cat": WORDS,
    "column_stack": WORDS,
    "cumprod": NARROWING,
    "cumsum": NARROWING,
    "dstack": WORDS,
    "hstack": WORDS,
    "nanmean": "NotImplementedError on the CPU, RuntimeError here",
    "nansum": "NotImplementedError on the CPU, RuntimeError here",
    "native_batch_norm": ANY,
    "normal": "NotImplementedError on the CPU, RuntimeError here",
    "sparse.sampled_addmm": "no out= form",
    "stack": WORDS,
    "vstack": WORDS,
}
OPS = [op for op in op_db if op.supports_out and op.supports_dtype(torch.float32, "cpu")]


def attempt(op, sample, device, shapes, dtypes):
    """None, or the class of the error."""

    def move(x):
        if isinstance(x, torch.Tensor):
            return x.detach().to(device)
        return torch.device(device) if isinstance(x, torch.device) or x == "cpu" else x

    given, args, kwargs = pytree.tree_map(move, (sample.input, sample.args, sample.kwargs))
    outs = [torch.zeros(s, dtype=t, device=device) for s, t in zip(shapes, dtypes, strict=True)]
    try:
        op(given, *args, **kwargs, out=outs[0] if len(outs) == 1 else tuple(outs))
    except Exception as e:
        return type(e)
    return None


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.full_name)
def test_out_of_another_dtype(op):
    samples = list(op.sample_inputs("cpu", torch.float32))
    sample = samples[len(samples) // 2]
    try:
        want = op(sample.input, *sample.args, **sample.kwargs)
    except Exception as e:
        pytest.skip(f"the CPU refuses the sample: {e}")
    want = list(want) if isinstance(want, tuple) else [want]
    if not all(isinstance(w, torch.Tensor) for w in want):
        pytest.skip("gives no tensors")
    shapes, found = [w.shape for w in want], []
    for i in range(len(want)):
        for dtype in (torch.float64, torch.int64):
            dtypes = [w.dtype for w in want]
            if dtypes[i] == dtype:
                continue
            dtypes[i] = dtype
            on_cpu, on_tpu = (attempt(op, sample, d, shapes, dtypes) for d in ("cpu", "tpu"))
            if on_cpu is not on_tpu:
                found.append((i, dtype, on_cpu, on_tpu))
    if op.full_name in DIFFERENT:
        assert found, "as on the CPU now: remove it from DIFFERENT"
        pytest.xfail(DIFFERENT[op.full_name])
    assert not found
