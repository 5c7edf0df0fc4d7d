"""Programs as files: export a module once, run it later without its code.

`torch_tpu.export` turns a module, or a program of `torch.export`, into StableHLO with a signature;
`Exported.save` writes a package (`.tpt2`): one file with program, weights and executable, which
`torch_tpu.load_package` and the C++ program `torch_tpu_run` run without tracing or compiling.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from torch_tpu.package._exported import Exported
from torch_tpu.package._loaded import Loaded
from torch_tpu.package._signature import Argument, ExportError, PackageError, Result, Signature

__all__ = [
    "Argument",
    "ExportError",
    "Exported",
    "Loaded",
    "PackageError",
    "Result",
    "Signature",
    "export",
    "load_package",
]


def export(
    module: torch.nn.Module | torch.export.ExportedProgram,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    weights: str = "apart",
    topology: str | None = None,
    strict: bool = False,
) -> Exported:
    """The program of `module(*args, **kwargs)`, for the shapes of these arguments.

    `module` is a module, which `torch.export.export` captures (with `strict` as there), or what
    that gave; then `args` and `kwargs` are those it was made with and may be left out. Module and
    arguments may lie on any device: the program is for `tpu`. `weights="apart"` makes parameters
    and buffers arguments of the program, "inside" constants of it, except for those that it
    writes. Without `topology` the program is for the device of this process, else for a TPU that
    need not be here ("v6e:1x1", `torch_tpu.aot.topologies`). Float32 products have the precision of
    `torch.get_float32_matmul_precision()`.

    Raises ExportError (a RuntimeError) for what cannot be one program with fixed types: dynamic
    shapes, values that are read, operators without a lowering; ValueError for an unknown topology
    or value of `weights`; and what `torch.export.export` raises.
    """
    from torch_tpu.aot import _chips
    from torch_tpu.package import _lower

    if weights not in ("apart", "inside"):
        raise ValueError(f'weights is "apart" or "inside", got {weights!r}')
    if topology is not None:
        topology, _ = _chips.normalize(topology)
    if isinstance(module, torch.export.ExportedProgram):
        program, name = module, module.graph_module._get_name()
    else:
        if not isinstance(args, tuple):
            raise TypeError(f"args is a tuple of arguments, got {type(args).__name__}")
        name = type(module).__name__
        with torch.no_grad():
            program = torch.export.export(module, args, kwargs, strict=strict)
    lowered = _lower.lower(program, name, topology=topology, inside=weights == "inside")
    return Exported(lowered, program)


def load_package(path: str | os.PathLike[str], device: str | torch.device = "tpu") -> Loaded:
    """The package at `path` as a function on `device`, with the module's calling convention.

    Nothing is traced, and nothing is compiled where the package's executable is for this plugin
    build and kind of processor; else its StableHLO is. Raises PackageError (a RuntimeError) for a
    file that is no package or damaged, or a package for another kind of device.
    """
    from torch_tpu.package import _file

    return Loaded(_file.read(path), device)
