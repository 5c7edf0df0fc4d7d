"""Changes to torch itself, each for a fault or a gap of torch 2.13 that has no hook."""

import functools
import threading
from typing import Any

import torch

from torch_tpu import _C


def apply() -> None:
    """Make the changes. Called once."""
    _module_moves()
    _autocast_dtype()
    _dlpack_device()
    _shared_memory()


def _module_moves() -> None:
    # torch keeps Parameter objects where it can write `param.data`, which it refuses between a
    # tpu and another device: Module.to would untie tied weights and leave optimizers with the old
    # ones, without an error. torch's own cure, set_swap_module_params_on_conversion, would change
    # CPU code too (a compiled module cannot be moved or loaded any more) and drops hooks.
    original: Any = torch.nn.Module._apply

    @functools.wraps(original)
    def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        before = [(key, param) for key, param in self._parameters.items() if param is not None]
        result = original(self, fn, recurse)
        if torch.__future__.get_overwrite_module_params_on_conversion():
            return result
        for key, old in before:
            new = self._parameters[key]
            if new is old or "tpu" not in (old.device.type, new.device.type):
                continue
            if not _C.set_data(old, new):
                continue
            if old.grad is not None and new.grad is not None:
                _C.set_data(old.grad, new.grad)
            self._parameters[key] = old
        return result

    torch.nn.Module._apply = _apply  # type: ignore[method-assign]


def _autocast_dtype() -> None:
    # The dtype of an autocast that names none is kept per thread and begins as float16.
    original: Any = torch.autocast.__init__
    thread = threading.local()

    @functools.wraps(original)
    def __init__(
        self: Any,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: Any = None,
    ) -> None:
        if dtype is None and device_type == "tpu" and not hasattr(thread, "ready"):
            thread.ready = True
            torch.set_autocast_dtype("tpu", torch.bfloat16)
        original(self, device_type, dtype, enabled, cache_enabled)

    torch.autocast.__init__ = __init__  # type: ignore[method-assign]
    torch.set_autocast_dtype("tpu", torch.bfloat16)
    thread.ready = True


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
