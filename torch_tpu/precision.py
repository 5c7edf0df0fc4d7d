"""How exactly float32 matrix products are computed.

TPUs multiply in bfloat16. A float32 product is exact to float32 in six passes, less exact and
faster in fewer. Without a setting here `torch.set_float32_matmul_precision` decides: "highest" (the
default) takes six passes, "high" three, "medium" one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Any, TypeVar

import torch

from torch_tpu import _C

__all__ = ["Precision", "get_precision", "precision"]


ANNOTATION = "tpu_precision"
Function = TypeVar("Function", bound=Callable[..., Any])


class Precision(Enum):
    """Passes of a float32 matrix product."""

    DEFAULT = 0
    """One pass: bfloat16's 8 bits of mantissa."""

    HIGH = 1
    """Three passes: about 16 bits."""

    HIGHEST = 2
    """Six passes: float32's 24 bits."""

    @staticmethod
    def _of(value: object) -> Precision:
        if isinstance(value, Precision):
            return value
        if isinstance(value, str) and value.upper() in Precision.__members__:
            return Precision[value.upper()]
        names = ", ".join(str(each) for each in Precision)
        raise TypeError(f"a precision is one of {names}, got {value!r}")


def get_precision() -> Precision:
    """The precision in force on this thread."""
    return Precision(_C.precision())


def precision(mode: Precision | str) -> _Pushed:
    """Context manager or decorator: use `mode` on this thread, a Precision or its name.

    In code that torch.compile traces, the operators inside are annotated with it, and their
    gradients with them.
    """
    chosen = Precision._of(mode)
    if torch.compiler.is_dynamo_compiling():
        return torch.fx.traceback.annotate({ANNOTATION: chosen.value})  # type: ignore[return-value]
    return _Pushed(chosen)


class _Pushed(contextlib.ContextDecorator):
    def __init__(self, mode: Precision) -> None:
        self.mode = mode

    def __enter__(self) -> _Pushed:
        _C.push_precision(self.mode.value)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _C.pop_precision()

    def __call__(self, function: Function) -> Function:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with precision(self.mode):
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]
