"""How eager ops run: one at a time, or recorded and run together."""

from __future__ import annotations

from contextlib import ContextDecorator
from enum import Enum
from types import TracebackType

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_tpu import _C

__all__ = ["EagerMode", "set_eager_mode"]


class EagerMode(Enum):
    """Eager execution modes. All give the same results."""

    DEFER_NEVER_AND_LAUNCH_BLOCKING = 0
    """Debug: every op runs alone and is waited for. An error is raised at its op."""

    DEFER_NEVER = 1
    """Strict: every op runs alone, without waiting."""

    DEFER_AND_FUSE = 2
    """Fused: ops are recorded and run as one program when a value is read, at synchronisation and
    at the recorder's limits."""

    @staticmethod
    def _of(mode: object) -> EagerMode:
        if isinstance(mode, EagerMode):
            return mode
        names = ", ".join(str(each) for each in EagerMode)
        raise TypeError(f"an eager mode is one of {names}, got {mode!r}")


def _cut_at_optimizer_steps() -> None:
    # One window a training step, whether or not the loop reads something: it repeats as it is.
    def end_step(*_: object) -> None:
        if not torch.compiler.is_compiling():
            _C.end_step()

    register_optimizer_step_post_hook(end_step)


def get_mode() -> EagerMode:
    """The mode in force on this thread."""
    return EagerMode(_C.current_mode())


def set_default_mode(mode: EagerMode) -> None:
    """Set the mode of the process, which holds where no `set_eager_mode` does."""
    _C.set_default_mode(EagerMode._of(mode).value)


class set_eager_mode(ContextDecorator):
    """Context manager or decorator: run this thread in `mode`; nests, and ends with the block."""

    def __init__(self, mode: EagerMode) -> None:
        self.mode = EagerMode._of(mode)

    def __enter__(self) -> set_eager_mode:
        _C.push_mode(self.mode.value)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _C.pop_mode()
