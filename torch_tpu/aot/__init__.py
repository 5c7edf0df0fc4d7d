"""Compile for TPUs that are not here, and read what the compiler knows.

`compile` takes a module or function with example arguments (real, meta or fake tensors: sizes are
all that counts) and gives a `Report`: whether it fits, memory, cost, hot spots by module and line,
advice. `python -m torch_tpu.aot FILE.py:NAME` does the same from a shell. No TPU and no network is
used; libtpu (`pip install libtpu`) does the work in a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch_tpu.aot import _chips, _compiler, _report, _trace
from torch_tpu.aot._compiler import CompilerError
from torch_tpu.aot._report import Report

__all__ = ["CompilerError", "Report", "compile", "topologies"]


def compile(
    module_or_fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    topology: str = "v6e:1x1",
    mode: str = "forward",
    optimizer: Any = None,
    precision: str | None = None,
    progress: bool | None = None,
) -> Report:
    """Compile `module_or_fn(*args, **kwargs)` for one device of a topology.

    Tensors among the arguments, and the parameters and buffers of modules (the module itself, those
    among the arguments and those that a function closes over), become arguments of the program.
    `mode="forward"` runs without gradients. `mode="train"` needs a loss of one element, or a result
    with a `loss`, and adds the backward pass and a step of `optimizer`: an Optimizer of the
    module's parameters, its class, or a function from a list of parameters to one; without one the
    gradients are outputs. `precision` is "highest", "high" or "medium", as
    `torch.set_float32_matmul_precision`, whose value holds without it. `progress` writes to stderr
    what is being done; by default where that is a terminal.

    A program that is too big gives a report with `fits` False. Raises ValueError for an unknown
    topology, mode or precision; what the code raises, among it RuntimeError where it reads a
    value of a tensor; CompilerError (a RuntimeError) when libtpu is missing, refuses the program
    or ends.
    """
    name, chip = _chips.normalize(topology)
    show = _compiler.Progress(sys.stderr.isatty() if progress is None else progress)
    with show.waiting("tracing"):
        program = _trace.trace(
            module_or_fn, args, kwargs, mode=mode, optimizer=optimizer, precision_name=precision
        )
    about = _compiler.describe(name)
    compiled = _compiler.compile_text(program.text, name, progress=show)
    return _report.make(program, compiled, name, chip, about)


def topologies() -> list[str]:
    """Names that `compile` takes. Also taken: "v6e:4" (chips), "v6e" (the smallest), "v7x:...".

    A program runs on one device of it: names with more chips matter for what is sharded.
    """
    return _chips.known()
