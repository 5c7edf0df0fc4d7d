"""PyTorch's database of list ops (`torch._foreach_*`) on tpu against the CPU."""

import pytest
import torch
from helpers import copied
from torch.testing._internal import common_methods_invocations as database
from torch.utils import _pytree as pytree

OPS = [
    *database.foreach_unary_op_db, *database.foreach_binary_op_db,
    *database.foreach_pointwise_op_db, *database.foreach_reduce_op_db,
    *database.foreach_other_op_db,
]  # fmt: skip


def kind(sample):
    """What tells an overload from another: what the arguments besides the list are."""

    def of(x):
        return f"[{of(x[0])}]" if isinstance(x, (list, tuple)) and x else type(x).__name__

    return (*map(of, sample.args), *(f"{k}={of(v)}" for k, v in sorted(sample.kwargs.items())))


def one_of_each_kind(op):
    found = {}
    for sample in op.sample_inputs("cpu", torch.float32, noncontiguous=False):
        if len(sample.input) and sample.input[0].numel():
            found.setdefault(kind(sample), sample)
    return [cut((s.input, s.args, s.kwargs)) for s in found.values()]


def cut(tree):
    """The first few of each list."""
    first, args, kwargs = tree
    few = [x[:4] if isinstance(x, (list, tuple)) else x for x in args]
    named = {k: x[:4] if isinstance(x, (list, tuple)) else x for k, x in kwargs.items()}
    return first[:4], few, named


def same(got, want):
    got, want = pytree.tree_leaves(got), pytree.tree_leaves(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.is_tpu
        torch.testing.assert_close(g.cpu(), w, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_lists_are_as_on_the_cpu(op):
    samples = one_of_each_kind(op)
    assert samples
    for given in samples:
        for form in (op.method_variant, op.inplace_variant):
            if form is None:
                continue
            (first, rest, named), (mine, others, options) = copied(given), copied(given, "tpu")
            try:
                want = form(first, *rest, **named)
            except RuntimeError as error:
                with pytest.raises(type(error)):
                    form(mine, *others, **options)
                continue
            got = form(mine, *others, **options)
            same(mine, first)
            if want is not None:
                same(got, want)
