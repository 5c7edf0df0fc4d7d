"""Fake tensors of `tpu` where torch's own rules say something else than our kernels do.

A rule takes the mode, the operator and its arguments, and gives fake results.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

Rule = Callable[..., Any]
aten = torch.ops.aten


def install(rules: dict[Any, Rule]) -> None:
    """Put ours before those in torch's table."""
    convolutions = (
        aten.convolution.default,
        aten._convolution.default,
        aten._convolution.deprecated,
        aten.convolution_backward.default,
    )
    for op in convolutions:
        rules[op] = _convolution(rules[op])
    rules[aten._grouped_mm.default] = _grouped_mm


def _convolution(original: Rule) -> Rule:
    """channels_last where one of the first two operands is, as on CUDA; torch has row-major."""

    def form_of(t: torch.Tensor) -> torch.memory_format | None:
        form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(t.dim())
        if form and t.is_contiguous(memory_format=form) and not t.is_contiguous():
            return form
        return None

    @functools.wraps(original)
    def rule(fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(fake_mode, func, *args, **kwargs)
        first, second = [*args, *kwargs.values()][:2]
        form = form_of(first) or form_of(second)
        if first.fake_device.type != "tpu" or form is None:
            return result

        def laid_out(t: torch.Tensor) -> torch.Tensor:
            return t.contiguous(memory_format=form) if t.dim() == first.dim() else t

        with fake_mode:
            return pytree.tree_map_only(torch.Tensor, laid_out, result)

    return rule


def _grouped_mm(fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Any floating dtype and alignment; torch's rule is that of one CUDA kernel, for bfloat16."""
    a, b = args[:2]
    if a.fake_device.type != "tpu":
        return NotImplemented
    out_dtype = args[4] if len(args) > 4 else kwargs.get("out_dtype")
    offs: Any = args[2] if len(args) > 2 else kwargs.get("offs")
    rows, columns = a.shape[-2], b.shape[-1]
    if a.dim() == b.dim():
        sizes = [offs.shape[0] if a.dim() == 2 else a.shape[0], rows, columns]
    else:
        sizes = [rows, columns]
    with fake_mode:
        return torch.empty(sizes, dtype=out_dtype or a.dtype, device=a.fake_device)
