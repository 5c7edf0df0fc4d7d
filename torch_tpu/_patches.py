"""Changes to torch itself, each for a fault or a gap of torch 2.13 that has no hook."""

import functools
from typing import Any

import torch


def apply() -> None:
    """Make the changes. Called once."""
    _dlpack_device()
    _shared_memory()


def _dlpack_device() -> None:
    # torch compares the device with the literal "privateuse1" (pytorch/pytorch#195815) and calls
    # pinned memory CUDA's; both are torch's own assumptions, not DLPack's.
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:
        if torch.overrides.has_torch_function_unary(self):
            return torch.overrides.handle_torch_function(
                torch.Tensor.__dlpack_device__, (self,), self
            )
        from torch.utils.dlpack import DLDeviceType

        kind = self.device.type
        if kind == "tpu":
            return DLDeviceType.kDLExtDev, self.device.index
        if kind == "cpu" and not torch.cuda.is_available():
            return DLDeviceType.kDLCPU, 0
        return original(self)

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]


def _shared_memory() -> None:
    # torch takes any device but the CPU for one whose memory other processes can map.
    def refuse(what: str) -> RuntimeError:
        return RuntimeError(
            f"{what}: the memory of a tpu belongs to one process; send tensor.cpu() and move it "
            "to the device in the process that receives it"
        )

    def guard(name: str, what: str) -> None:
        original = getattr(torch.UntypedStorage, name)

        @functools.wraps(original)
        def wrapper(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
            if self.device.type == "tpu":
                raise refuse(what)
            return original(self, *args, **kwargs)

        setattr(torch.UntypedStorage, name, wrapper)

    guard("share_memory_", "a tpu tensor cannot be moved to shared memory")
    guard("_share_fd_cpu_", "a tpu tensor cannot be sent to another process")
    guard("_share_filename_cpu_", "a tpu tensor cannot be sent to another process")
