"""`torch.tpu.amp`: `torch.amp` for this device, with the names of `torch.cuda.amp`."""

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.amp.autocast):
    """`torch.autocast("tpu", ...)`; without `dtype`, in the device's: bfloat16."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool = True
    ) -> None:
        super().__init__("tpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("tpu", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("tpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None
) -> Callable[..., Any]:
    """`torch.amp.custom_fwd(..., device_type="tpu")`."""
    return torch.amp.custom_fwd(fwd, device_type="tpu", cast_inputs=cast_inputs)  # type: ignore[no-any-return]


def custom_bwd(bwd: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """`torch.amp.custom_bwd(..., device_type="tpu")`."""
    return torch.amp.custom_bwd(bwd, device_type="tpu")  # type: ignore[no-any-return]
