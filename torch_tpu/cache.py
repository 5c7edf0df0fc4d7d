"""Compiled programs that are kept in memory and on disk (`torch.tpu.cache`)."""

from typing import Any

from torch_tpu import _C

__all__ = ["clear", "stats"]


def stats() -> dict[str, Any]:
    """What is kept: memory_entries, memory_bytes, disk_path, disk_entries, disk_bytes.

    Hits and compiles are in `torch_tpu.debug.counters()`.
    """
    return _C.cache_stats()


def clear(*, memory: bool = True, disk: bool = False) -> None:
    """Forget compiled programs, by default only this process's; `disk` also those of all others."""
    _C.cache_clear(memory, disk)
