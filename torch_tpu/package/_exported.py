"""What `torch_tpu.export` gives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torch_tpu import _C
from torch_tpu.package import _file
from torch_tpu.package._loaded import Loaded
from torch_tpu.package._signature import ExportError, Signature

if TYPE_CHECKING:
    from torch_tpu.package._lower import Lowered


# Special functions, which have no place in a portable artifact, as arithmetic.
_PASSES = "builtin.module(func.func(chlo-legalize-to-stablehlo))"


def portable_artifact(text: str, version: str | None) -> bytes:
    try:
        from jaxlib.mlir import ir, passmanager
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import chlo, stablehlo
    except ImportError as error:
        raise ImportError("portable artifacts are written by jaxlib: pip install jaxlib") from error
    if version is None:
        weeks = stablehlo.StablehloCompatibilityRequirement.WEEK_12
        version = stablehlo.get_version_from_compatibility_requirement(weeks)
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    with ir.Context() as context:
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        chlo.register_dialect(context)
        stablehlo.register_dialect(context)
        stablehlo.register_stablehlo_passes()
        module = ir.Module.parse(text)
        passmanager.PassManager.parse(_PASSES).run(module.operation)
        made: bytes = stablehlo.serialize_portable_artifact(module, version)
        return made


class Exported:
    """A module as one StableHLO program. Callable as the module is, on the device of this process.

    `signature` says what the program takes and gives, `stablehlo` is its text, `program` the
    `torch.export.ExportedProgram` that it was made of.
    """

    def __init__(self, lowered: Lowered, program: torch.export.ExportedProgram) -> None:
        self.program = program
        self.signature: Signature = lowered.signature
        self.stablehlo: str = lowered.text
        self._weights = lowered.weights
        self._loaded: Loaded | None = None

    def __repr__(self) -> str:
        s = self.signature
        takes = ", ".join(
            f"{a.name}: {a.dtype}{list(a.shape)}" for a in s.arguments if a.kind == "input"
        )
        gives = ", ".join(
            f"{r.name}: {r.dtype}{list(r.shape)}" for r in s.results if r.kind == "output"
        )
        return f"<torch_tpu.Exported {s.name}({takes}) -> ({gives}) for {s.topology or s.platform}>"

    def weights(self) -> dict[str, torch.Tensor]:
        """Copies on the host of the parameters, buffers and constants that are arguments, by name.

        Raises ExportError where one has no values (meta and fake tensors).
        """
        from torch_tpu.package._lower import _host

        return {name: _host(w) for name, w in self._weights.items()}

    def bytecode(self, version: str | None = None) -> bytes:
        """The program as a StableHLO portable artifact, which later releases read.

        `version`: the oldest StableHLO that shall read it, "1.5.0"; without it one of 12 weeks ago,
        as jax.export takes. Needs jaxlib, whose bindings write it: raises ImportError without,
        ValueError where it refuses the version.
        """
        return portable_artifact(self.stablehlo, version)

    def save(self, path: str | os.PathLike[str], *, executable: bool = True) -> Path:
        """Write a package (`.tpt2`), compiled for what it was exported for.

        Without `executable` nothing is compiled: whoever loads the package does. Raises
        `torch_tpu.aot.CompilerError` where a topology's compiler refuses the program or it does not
        fit, ExportError where a weight has no values.
        """
        weights = self.weights()
        made = self._compile() if executable else b""
        return _file.write(_file.Contents(self.signature, self.stablehlo, weights, made), path)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it. The weights are those of the export, on the device; buffers keep updates."""
        if self._loaded is None:
            if self.signature.topology is not None:
                raise ExportError(
                    f"the program is for {self.signature.topology}, which is not here; save it"
                )
            contents = _file.Contents(self.signature, self.stablehlo, self.weights(), b"")
            self._loaded = Loaded(contents, torch.device("tpu", _C.current_device()))
        return self._loaded(*args, **kwargs)

    def _compile(self) -> bytes:
        if self.signature.topology is None:
            return _C.compile_for_package(self.stablehlo)
        from torch_tpu.aot import _compiler

        compiled = _compiler.compile_text(self.stablehlo, self.signature.topology)
        if compiled.failure:
            raise _compiler.CompilerError(compiled.failure)
        return compiled.serialized
