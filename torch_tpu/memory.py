"""Memory statistics of `torch.tpu`, under `torch.cuda`'s names.

Every device buffer is counted, those of running programs' results included. There is no caching
allocator above the plugin's own: "reserved" equals "allocated", and `empty_cache` asks the plugin
and our host allocator to give back what they keep.
"""

from typing import Any

import torch

from torch_tpu import _C
from torch_tpu._index import Device, device_index

__all__ = [
    "OutOfMemoryError",
    "device_memory_used",
    "empty_cache",
    "empty_host_cache",
    "get_memory_info",
    "get_per_process_memory_fraction",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]

OutOfMemoryError = torch.OutOfMemoryError


def memory_stats(device: Device = None) -> dict[str, int]:
    """Flat statistics such as `allocated_bytes.all.current`; empty before the first use.

    Names are `{allocation, allocated_bytes, active, active_bytes, reserved_bytes,
    requested_bytes, segment}.all.{current, peak, allocated, freed}`, `num_alloc_retries`
    and `num_ooms`.
    """
    index = device_index(device)
    return dict(sorted(_C.memory_stats(index).items())) if _C.is_initialized() else {}


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """`memory_stats` with a dict for each dot in a name."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *path, last = name.split(".")
        at = nested
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return nested


def _stat(name: str, device: Device) -> int:
    return memory_stats(device).get(name, 0)


def memory_allocated(device: Device = None) -> int:
    """Bytes that live buffers take on `device`."""
    return _stat("allocated_bytes.all.current", device)


def max_memory_allocated(device: Device = None) -> int:
    """Most bytes that buffers took at once since the start or the last peak reset."""
    return _stat("allocated_bytes.all.peak", device)


def memory_reserved(device: Device = None) -> int:
    """Bytes held from the device, used or not."""
    return _stat("reserved_bytes.all.current", device)


def max_memory_reserved(device: Device = None) -> int:
    """Most bytes held from the device since the start or the last peak reset."""
    return _stat("reserved_bytes.all.peak", device)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Make the peaks start again from what is in use now."""
    index = device_index(device)
    if _C.is_initialized():
        _C.reset_peak_memory_stats(index)


def reset_max_memory_allocated(device: Device = None) -> None:
    """Old name of `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Set the running totals (`allocated`, `freed`, retries and out-of-memory counts) to zero."""
    index = device_index(device)
    if _C.is_initialized():
        _C.reset_accumulated_memory_stats(index)


def empty_cache() -> None:
    """Give back memory that is kept for later use. Live tensors keep theirs."""
    if _C.is_initialized():
        _C.empty_cache()


def empty_host_cache() -> None:
    """Give back pinned host memory that is kept for later use."""
    empty_cache()


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) bytes of `device`. Starts the runtime."""
    from torch_tpu.device import _lazy_init

    index = device_index(device)
    _lazy_init()
    return _C.mem_get_info(index)


get_memory_info = mem_get_info


def device_memory_used(device: Device = None) -> int:
    """Bytes in use on `device`, as its plugin or our count knows them. Starts the runtime."""
    free, total = mem_get_info(device)
    return total - free


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Let this process use at most `fraction` (0 to 1) of the memory of `device`.

    What would go beyond it raises OutOfMemoryError. Tensors that are already there stay.
    """
    from torch_tpu.device import _lazy_init

    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    index = device_index(device)
    _lazy_init()
    _C.set_memory_limit(index, int(fraction * _C.mem_get_info(index)[1]))


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The fraction of the memory of `device` that this process may use."""
    from torch_tpu.device import _lazy_init

    index = device_index(device)
    _lazy_init()
    return _C.memory_limit(index) / _C.mem_get_info(index)[1]


def memory_snapshot(device: Device = None) -> list[dict[str, Any]]:
    """One segment, in the form of `torch.cuda.memory_snapshot`, for each live tensor storage.

    `address` is the storage's handle, as `untyped_storage().data_ptr()` gives it; `type` of its one
    block is the StableHLO type of what it holds. Storages that share a buffer are each listed.
    """
    index = device_index(device)
    if not _C.is_initialized():
        return []
    rows: list[dict[str, Any]] = []
    for number, size, kind in _C.live_tensors(index):
        address = 1 << 62 | number << 38
        block: dict[str, Any] = {"address": address, "size": size, "requested_size": size}
        block |= {"state": "active_allocated", "type": kind}
        segment: dict[str, Any] = {"device": index, "address": address, "stream": 0}
        segment["segment_type"] = "large"
        segment |= {f"{what}_size": size for what in ("total", "allocated", "active", "requested")}
        rows.append(segment | {"blocks": [block]})
    return rows


def _bytes(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


_ROWS = (
    ("allocated_bytes", "Allocated memory", _bytes),
    ("active_bytes", "Active memory", _bytes),
    ("reserved_bytes", "Reserved memory", _bytes),
    ("allocation", "Allocations", str),
)


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The statistics as a table; `abbreviated` leaves out the running totals."""
    index = device_index(device)
    stats = memory_stats(index)
    columns = ["current", "peak"] if abbreviated else ["current", "peak", "allocated", "freed"]
    head = {"current": "in use", "peak": "peak", "allocated": "total", "freed": "freed"}
    lines = [
        f"tpu:{index} memory, {stats.get('num_ooms', 0)} out-of-memory errors",
        f"{'':18}" + "".join(f"{head[c]:>14}" for c in columns),
    ]
    for key, title, form in _ROWS:
        cells = (form(stats.get(f"{key}.all.{column}", 0)) for column in columns)
        lines.append(f"{title:18}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines) + "\n"
