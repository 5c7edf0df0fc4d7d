"""What torch's flex_attention needs to know of `tpu`.

In a compiled graph the operator's own definition runs on placeholders. Dynamo traces into this
module: torch's code calls it in place of a function of its own.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from torch._C import DispatchKey

_JOINT_GRAPH, _BUFFERS = 8, 12  # arguments of flex_attention_backward
_INDICES = 5  # results of the joint graph in front of the buffers': score, batch, head, two places


def install(module: ModuleType) -> None:
    """`module`: torch.nn.attention.flex_attention. Its check of the devices has no hook."""
    others = module._validate_device

    def _validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "tpu":
            others(query, key, value)

    module._validate_device = _validate_device  # type: ignore[attr-defined]


@functools.cache
def register() -> None:
    """Have the backward operator give the gradients of captured tensors in a graph."""
    from torch._higher_order_ops.flex_attention import flex_attention_backward, sdpa_dense_backward

    def backward(*args: Any) -> Any:
        # The definition gives those of tensors that require one, and those of a graph never do.
        result = args[_JOINT_GRAPH].graph.output_node().args[0]
        buffers = tuple(
            x.detach().requires_grad_(grad is not None) if isinstance(x, torch.Tensor) else x
            for x, grad in zip(args[_BUFFERS], result[_INDICES:], strict=True)
        )
        given = (*args[:_BUFFERS], buffers, *args[_BUFFERS + 1 :])
        return sdpa_dense_backward(*given)

    flex_attention_backward.py_impl(DispatchKey.PrivateUse1)(backward)
    flex_attention_backward._dispatch_cache.clear()
