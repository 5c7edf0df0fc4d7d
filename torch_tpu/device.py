"""`torch.tpu`: the device's interface, as `torch.cuda` is for GPUs.

Nothing starts the runtime until a tensor or a property of the device is needed. Where an argument
`device` is None the current device is meant.
"""

import importlib
import sys
import threading
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Any

import torch

from torch_tpu import _C, amp, cache, memory, mode, random
from torch_tpu import stream as streams
from torch_tpu._index import Device, device_index
from torch_tpu.explain import explain
from torch_tpu.memory import *  # noqa: F403
from torch_tpu.mode import EagerMode, set_eager_mode
from torch_tpu.precision import Precision, get_precision, precision
from torch_tpu.random import *  # noqa: F403
from torch_tpu.random import _get_rng_state_offset, _set_rng_state_offset  # noqa: F401
from torch_tpu.stream import *  # noqa: F403
from torch_tpu.stream import _set_stream_by_id  # noqa: F401

__all__ = [
    "AcceleratorError",
    "DeviceProperties",
    "EagerMode",
    "Precision",
    "amp",
    "cache",
    "can_device_access_peer",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "explain",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_precision",
    "get_sync_debug_mode",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "memory",
    "precision",
    "random",
    "set_device",
    "set_eager_mode",
    "set_sync_debug_mode",
    "streams",
    "synchronize",
    *memory.__all__,
    *random.__all__,
    *streams.__all__,
]

AcceleratorError = torch.AcceleratorError

# -- availability and start ------------------------------------------------------------------------


def is_available() -> bool:
    """True when there is a device: a TPU, or the embedded CPU plugin. Starts nothing."""
    return _C.is_available()


def device_count() -> int:
    """Number of devices that this process can use. Starts nothing."""
    return _C.device_count()


def is_initialized() -> bool:
    """True when the runtime has been started in this process."""
    return _C.is_initialized() and not _C.is_in_bad_fork()


def init() -> None:
    """Start the runtime now. Usually not needed: the first tensor does it."""
    _lazy_init()


_start = threading.Lock()


def _lazy_init() -> None:
    if is_initialized():
        return
    if _is_in_bad_fork():
        raise RuntimeError(
            "the tpu device was used before this process was forked and cannot be used in the "
            "child; start processes with the 'spawn' method, for example "
            "torch.multiprocessing.set_start_method('spawn')"
        )
    with _start:
        _C.initialize()


def _is_in_bad_fork() -> bool:
    return _C.is_in_bad_fork()


def _is_compiled() -> bool:
    return True


# -- the current device ----------------------------------------------------------------------------


def current_device() -> int:
    """Index of this thread's current device."""
    return _C.current_device()


def set_device(device: Device) -> None:
    """Make `device` this thread's current device. A negative index changes nothing.

    Raises RuntimeError for an index that this process does not have.
    """
    index = device_index(device, check=False)
    if index >= 0:
        _C.set_device(device_index(index))


def _exchange_device(device: int) -> int:
    return _C.exchange_device(device) if device >= 0 else -1


_maybe_exchange_device = _exchange_device


class device:
    """Context manager that makes `device` current inside the block. None, -1: no change."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else device_index(device, check=False)
        if self.idx >= 0:
            device_index(self.idx)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that makes the device of a tensor or storage current, if it is a tpu."""

    def __init__(self, obj: Any) -> None:
        where = obj.device
        super().__init__(where if where.type == "tpu" else None)


def synchronize(device: Device = None) -> None:
    """Run what is recorded for `device` and wait for all its work. Reports errors of that work."""
    index = device_index(device)
    _lazy_init()
    _C.synchronize(index)


_SYNC_DEBUG_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What a read of a value by the host does besides waiting: nothing, a warning or an error.

    `debug_mode` is "default" (0), "warn" (1) or "error" (2). Reads are copies to the host,
    `.item()` and what needs them, such as `nonzero`; `synchronize` is not one.
    """
    known = debug_mode in _SYNC_DEBUG_MODES if isinstance(debug_mode, str) else 0 <= debug_mode <= 2
    if not known:
        raise RuntimeError(
            "invalid value of debug_mode, expected one of `default`, `warn`, `error`"
        )
    _C.set_wait_notice(
        _SYNC_DEBUG_MODES.index(debug_mode) if isinstance(debug_mode, str) else debug_mode
    )


def get_sync_debug_mode() -> int:
    """0, 1 or 2: see `set_sync_debug_mode`."""
    return _C.wait_notice()


# -- properties ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is.

    `platform` is "tpu", or "cpu" for the embedded plugin; `kind` is what the plugin calls the
    device; `total_memory` is in bytes; `core_count` counts compute cores.
    """

    name: str
    platform: str
    kind: str
    total_memory: int
    core_count: int

    @property
    def multi_processor_count(self) -> int:
        """`core_count` under the name that frameworks look for."""
        return self.core_count


def get_device_properties(device: Device = None) -> DeviceProperties:
    """The device's properties. Starts the runtime."""
    index = device_index(device)
    _lazy_init()
    found = _C.device_properties(index)
    return DeviceProperties(**{name: found[name] for name in DeviceProperties.__annotations__})


def get_device_name(device: Device = None) -> str:
    """The device's name; it says so when it is the CPU plugin and no TPU. Starts the runtime."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> dict[str, Any]:
    """What tensors the device can hold: {"supported_dtypes": set of torch.dtype}."""
    return dict(torch._C._accelerator_getDeviceCapability(device_index(device)))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: bfloat16 is the TPU's own float type."""
    return is_available()


def is_tf32_supported() -> bool:
    """False: TPUs have no TF32. `torch.tpu.precision` chooses how float32 products are made."""
    return False


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that `torch.autocast("tpu")` takes."""
    return [torch.bfloat16, torch.float16, torch.float32]


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """True for any two devices of this process: the plugin copies between them directly.

    Raises AssertionError for an index that this process does not have.
    """
    count = device_count()
    indices = [device_index(d, check=False) for d in (device, peer_device)]
    for index in indices:
        assert 0 <= index < count, f"Invalid device id {index}"
    return True


def is_current_stream_capturing() -> bool:
    """False: there are no captured graphs; `torch.compile` has their use."""
    return False


# -- computed attributes of the module, and its submodules ---------------------------------------


class _Module(ModuleType):
    @property
    def eager_mode(self) -> EagerMode:
        """The eager mode in force on this thread; setting it sets the process's."""
        return mode.get_mode()

    @eager_mode.setter
    def eager_mode(self, value: EagerMode) -> None:
        mode.set_default_mode(value)

    @property
    def default_generators(self) -> tuple[torch.Generator, ...]:
        """The default generator of each device."""
        return random._generators()

    @property
    def _initialized(self) -> bool:
        return is_initialized()

    def __dir__(self) -> list[str]:
        return sorted([*__all__, "default_generators", "eager_mode"])

    # Classes that hold the device module are pickled and deep-copied.
    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, ("torch.tpu",)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Module":
        return self


sys.modules[__name__].__class__ = _Module


def __getattr__(name: str) -> Any:
    # Rarely needed, and imports what starting up need not.
    if name == "aot":
        return importlib.import_module("torch_tpu.aot")
    raise AttributeError(f"module 'torch.tpu' has no attribute {name!r}")


def _register_submodules() -> None:
    """Make `import torch.tpu.memory` and the like work."""
    for name in ("amp", "cache", "memory", "random", "streams"):
        sys.modules[f"torch.tpu.{name}"] = globals()[name]
