"""torch's flex_attention accepts tensors of `tpu`.

Its check of the devices names those that it knows, and has no hook. What follows the check is
ordinary: in a compiled graph the operator's own definition runs on placeholders.
"""

from __future__ import annotations

from types import ModuleType

import torch


def install(module: ModuleType) -> None:
    """`module`: torch.nn.attention.flex_attention."""
    others = module._validate_device

    def _validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "tpu":
            others(query, key, value)

    module._validate_device = _validate_device  # type: ignore[attr-defined]
