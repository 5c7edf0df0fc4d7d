"""PyTorch's operator database on tpu against CPU: results, dtypes, shapes and gradients in float32.

By default one sample an operator and those that lower ops which no other sample does, as
tools/choose_samples.py found them (samples.json); TORCH_TPU_TEST_OP_SAMPLES=N takes N of each, 0
all. The wider measure is the conformance driver that docs/conformance.md names.
"""

import json
import os
from pathlib import Path

import pytest
import torch
from ops.expectations import KNOWN_FAILURES, RANDOM, REFUSED, SIGN_FREE, TIES, UNDEFINED
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

pytestmark = pytest.mark.usefixtures("full_compiles")

SAMPLES = int(os.environ.get("TORCH_TPU_TEST_OP_SAMPLES", "-1"))  # -1: the chosen ones
CHOSEN = json.loads(Path(__file__).with_name("samples.json").read_text())


def full_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def to_device(tree, grad, name):
    def move(x):
        if isinstance(x, torch.Tensor):
            y = x.detach().clone().to("tpu")
            return y.requires_grad_() if grad and x.requires_grad else y
        if isinstance(x, torch.device) or x == "cpu":
            return torch.device("tpu")
        return x

    return pytree.tree_map(move, tree)


def tensors(tree):
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def compare(op, got, want):
    got, want = tensors(got), tensors(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.device.type == "tpu"
        assert g.dtype == w.dtype and g.shape == w.shape, (g.dtype, g.shape, w.dtype, w.shape)
        if op.name in UNDEFINED or full_name(op) in RANDOM or op.name in RANDOM:
            continue
        if op.name in TIES and not w.is_floating_point():
            continue
        g, w = g.detach().cpu(), w.detach()
        if op.name in SIGN_FREE:
            g, w = g.abs(), w.abs()
        torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-3, equal_nan=True)


def gradients(op, sample, args):
    first, rest, named = args
    result = op(first, *rest, **named)
    if sample.output_process_fn_grad is not None:
        result = sample.output_process_fn_grad(result)
    outputs = [t for t in tensors(result) if t.requires_grad]
    inputs = [t for t in tensors(args) if t.requires_grad]
    if not outputs or not inputs:
        return []
    # Weights that differ from element to element, the same on both devices.
    weights = [
        torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape).to(t.dtype).to(t.device)
        for t in outputs
    ]
    found = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
    return [g for g in found if g is not None]


def test_samples_are_chosen_for_this_release():
    assert torch.__version__.split("+")[0] == CHOSEN["torch"], "run tools/choose_samples.py"


@pytest.mark.parametrize("number", range(len(op_db)), ids=[full_name(op) for op in op_db])
def test_results_and_gradients(number):
    op = op_db[number]
    name = full_name(op)
    dtype = torch.float32 if op.supports_dtype(torch.float32, "cpu") else torch.int64
    if not op.supports_dtype(dtype, "cpu"):
        pytest.skip("neither float32 nor int64 on the CPU")
    grad = dtype is torch.float32 and op.supports_autograd
    if name in KNOWN_FAILURES:
        pytest.xfail(KNOWN_FAILURES[name])
    torch.manual_seed(0)
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
    if SAMPLES < 0:
        samples = [samples[n] for n in CHOSEN["samples"].get(str(number), [0]) if n < len(samples)]
    elif SAMPLES:
        samples = samples[:: max(1, -(-len(samples) // SAMPLES))]
    done = 0
    for sample in samples:
        given = (sample.input, sample.args, sample.kwargs)
        moved = to_device(given, grad, op.name)
        try:
            torch.manual_seed(1)
            want = op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            continue  # the CPU refuses it
        if name in REFUSED:
            with pytest.raises(NotImplementedError, match=REFUSED[name]):
                op(moved[0], *moved[1], **moved[2])
            done += 1
            continue
        torch.manual_seed(1)
        compare(op, op(moved[0], *moved[1], **moved[2]), want)
        if grad and name not in RANDOM and op.name not in RANDOM | SIGN_FREE | UNDEFINED:
            try:
                want = gradients(op, sample, given)
            except Exception:
                continue  # the CPU has no gradient for this sample
            compare(op, gradients(op, sample, to_device(given, grad, op.name)), want)
        done += 1
    if not done:
        pytest.skip("the CPU accepts no sample")
