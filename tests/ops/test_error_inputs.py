"""PyTorch's error inputs: the class and the phrase that its own tests ask for.

What only the device sees (an index, a probability) is told at the next read.
"""

import re

import pytest
import torch
from ops.expectations import OTHER_ERRORS
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

OPS = [op for op in op_db if op.error_inputs_func is not None]


def call(op, sample):
    result = op(sample.input, *sample.args, **sample.kwargs)
    for t in pytree.tree_leaves(result):
        if isinstance(t, torch.Tensor) and t.device.type == "tpu":
            t.cpu()
    torch.tpu.synchronize()


def outcome(op, error):
    """None when the error is as asked for, else what happened."""
    try:
        call(op, error.sample_input)
    except Exception as got:
        if not isinstance(got, error.error_type):
            return f"{type(got).__name__} for {error.error_type.__name__}: {got}"
        if error.error_regex and not re.search(error.error_regex, str(got)):
            return f"{error.error_regex!r} is not in: {got}"
        return None
    return f"nothing for {error.error_type.__name__} {error.error_regex!r}"


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.full_name)
def test_error_inputs(op):
    found, same_on_cpu = [], 0
    on_cpu = list(op.error_inputs("cpu"))
    on_tpu = list(op.error_inputs("tpu"))
    for i, error in enumerate(on_tpu):
        if len(on_cpu) == len(on_tpu) and outcome(op, on_cpu[i]) is not None:
            continue  # nor does the CPU raise it
        same_on_cpu += 1
        if (what := outcome(op, error)) is not None:
            found.append(f"{i}: {what}")
    if not same_on_cpu:
        pytest.skip("the CPU raises none of them")
    if op.full_name in OTHER_ERRORS:
        assert found, "as asked for now: remove it from OTHER_ERRORS"
        pytest.xfail(OTHER_ERRORS[op.full_name])
    assert not found, "\n".join(found)
