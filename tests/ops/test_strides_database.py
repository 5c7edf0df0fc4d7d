"""Strides of results and gradients over PyTorch's operator database, for inputs of three layouts.

They are the CPU's. Fake tensors, on which graphs are made, mostly agree with the CPU; where the two
differ, a result of either kind counts as right, and torch_tpu.compile makes the graph's true.
"""

import os
import random

import pytest
import torch
from ops.expectations import OTHER_STRIDES
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from torch_tpu.mode import EagerMode, set_eager_mode

# Few samples show few differences: what no longer differs is told by a run of many.
SAMPLES = int(os.environ.get("TORCH_TPU_TEST_STRIDE_SAMPLES", "2"))
MANY = 30
LAYOUTS = ("contiguous", "transposed", "channels_last")


def laid_out(x, layout):
    x = x.detach().contiguous()
    if layout == "transposed" and x.dim() >= 2:
        return x.mT.contiguous().mT
    if layout == "channels_last" and x.dim() in (4, 5):
        last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        return x.contiguous(memory_format=last)
    return x.clone()


def tensors(tree):
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def arguments(sample, layout, device, grad, fake=None):
    def move(x):
        if isinstance(x, torch.Tensor):
            if x.layout is not torch.strided:
                return x.to(device)
            y = laid_out(x, layout).to(device)
            y = fake.from_tensor(y) if fake else y
            return y.requires_grad_() if grad and x.requires_grad else y
        if device != "cpu" and (isinstance(x, torch.device) or x == "cpu"):
            return torch.device(device)
        return x

    return pytree.tree_map(move, (sample.input, sample.args, sample.kwargs))


def strides_of(found):
    """Of each tensor: shape, and the strides of dims that have more than one place."""
    rows = []
    for t in found:
        if t is None or t.layout is not torch.strided or t.numel() == 0:
            rows.append(None)
        else:
            rows.append([s for s, n in zip(t.stride(), t.shape, strict=True) if n != 1])
    return rows


def run(op, sample, layout, device, grad, fake=None):
    given = arguments(sample, layout, device, grad, fake)
    torch.manual_seed(0)
    random.seed(0)
    result = op(given[0], *given[1], **given[2])
    if not grad:
        return strides_of(tensors(result))
    if sample.output_process_fn_grad is not None:
        result = sample.output_process_fn_grad(result)
    outputs = [t for t in tensors(result) if t.requires_grad]
    inputs = [t for t in tensors(given) if t.requires_grad]
    if not outputs or not inputs:
        return []
    ones = [torch.ones_like(t) for t in outputs]
    return strides_of(torch.autograd.grad(outputs, inputs, ones, allow_unused=True))


def differences(op, sample, layout, grad):
    try:
        want = run(op, sample, layout, "cpu", grad)
    except Exception:
        return None  # the CPU refuses the sample
    try:
        got = run(op, sample, layout, "tpu", grad)
    except Exception as error:
        return [str(error)]
    if got == want:
        return []
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = run(op, sample, layout, "tpu", grad, mode)
    except Exception:
        fake = want
    return [
        f"{layout}{', gradient' if grad else ''} {i}: {g}, CPU {w}, fake {f}"
        for i, (g, w, f) in enumerate(zip(got, want, fake, strict=True))
        if g not in (w, f)
    ]


@pytest.mark.parametrize("op", op_db, ids=lambda op: op.full_name)
def test_strides_of_results_and_gradients(op):
    if not op.supports_dtype(torch.float32, "cpu"):
        pytest.skip("not for float32")
    samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd))
    samples = samples[:: max(1, len(samples) // SAMPLES)]
    compared, wrong = 0, []
    with set_eager_mode(EagerMode.DEFER_AND_FUSE):  # nothing is compiled: strides are known before
        for sample in samples:
            ranks = {t.dim() for t in tensors((sample.input, sample.args, sample.kwargs))}
            for layout in LAYOUTS[: 3 if ranks & {4, 5} else 2]:
                for grad in (False, True)[: 1 + op.supports_autograd]:
                    found = differences(op, sample, layout, grad)
                    if found is not None:
                        compared += 1
                        wrong += found
    if not compared:
        pytest.skip("the CPU accepts no sample")
    if op.full_name in OTHER_STRIDES:
        if wrong:
            pytest.xfail(OTHER_STRIDES[op.full_name])
        assert SAMPLES < MANY, "as on the CPU now: remove it from OTHER_STRIDES"
    assert not wrong, "; ".join(wrong[:4])
