"""What the backend did: counters, compiled programs, the program that a tensor waits for."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from torch_tpu import _C

__all__ = [
    "compile_count",
    "counters",
    "dump_modules",
    "is_deferred",
    "lower",
    "record_modules",
    "reset",
]


def counters() -> dict[str, Any]:
    """Counts since the start or the last `reset`.

    `compiles`, `executes`, `memory_hits`, `disk_hits`, `bytes_h2d`, `bytes_d2h` are ints;
    `flushes` (by reason) and `fallbacks` (by op) are dicts of ints.
    """
    return _C.counters()


def compile_count() -> int:
    """Programs compiled since the start or the last `reset`."""
    return int(_C.counters()["compiles"])


def reset() -> None:
    """Set all counters to zero."""
    _C.reset_counters()


@contextlib.contextmanager
def record_modules() -> Iterator[list[tuple[str, str]]]:
    """Collect every program compiled inside the block: a list of (key, StableHLO text).

    A program that is in a cache is not compiled again; `torch.tpu.cache.clear()` makes it. One
    block at a time in a process: an inner one takes over until it ends.
    """
    seen: list[tuple[str, str]] = []
    with _modules_to(lambda key, text: seen.append((key, text))):
        yield seen


@contextlib.contextmanager
def dump_modules(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Write every program compiled inside the block to `folder`, one `<number>_<key>.mlir` each."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    count = 0

    def write(key: str, text: str) -> None:
        nonlocal count
        name = re.sub(r"[^0-9A-Za-z_.-]", "_", key)
        (path / f"{count:04}_{name}.mlir").write_text(text)
        count += 1

    with _modules_to(write):
        yield path


_callbacks: list[Any] = []


@contextlib.contextmanager
def _modules_to(callback: Any) -> Iterator[None]:
    _callbacks.append(callback)
    _C.set_module_callback(callback)
    try:
        yield
    finally:
        _callbacks.remove(callback)
        _C.set_module_callback(_callbacks[-1] if _callbacks else None)


def lower(*tensors: torch.Tensor) -> str:
    """StableHLO text of the recorded ops that `tensors` wait for. Runs nothing.

    Raises RuntimeError when nothing is waiting, as in modes that do not defer.
    """
    return _C.lower(list(tensors))


def is_deferred(tensor: torch.Tensor) -> bool:
    """True while the tensor's value is recorded but not launched."""
    return bool(_C.storage_info(tensor)["state"] == "deferred")
