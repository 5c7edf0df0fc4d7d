"""Compiled programs that are kept in memory and on disk (`torch.tpu.cache`)."""

from typing import Any

from torch_tpu import _C

__all__ = ["clear", "stats"]


def stats() -> dict[str, Any]:
    """What is kept: memory_entries, call_types; disk_path, disk_readonly, disk_entries, disk_bytes.

    memory_entries counts programs, call_types what was recorded by op, types and attributes.
    Hits and compiles are in `torch_tpu.debug.counters()`.
    """
    return _C.cache_stats()


def clear(*, memory: bool = True, disk: bool = False) -> None:
    """Forget compiled programs, by default only this process's; `disk` also those of all others.

    A cache on disk that is only read stays as it is.
    """
    _C.cache_clear(memory, disk)
