"""What a program takes and gives, and its JSON (docs/adr/0025)."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_tpu._version import __version__

# The number of the format: raised when an older reader would misunderstand a newer file.
FORMAT = 1
WEIGHTS = ("parameter", "buffer", "constant")


class ExportError(RuntimeError):
    """A program cannot be exported; the text says why."""


class PackageError(RuntimeError):
    """A file is no package, is damaged or is for another device."""


@dataclass(frozen=True)
class Argument:
    """An argument of the program. `kind`: input, parameter, buffer, constant, generator."""

    name: str
    kind: str
    dtype: str  # as torch calls it, "float32"
    shape: tuple[int, ...]
    updated_by: int = -1  # the result that is its new value; it has its memory

    @property
    def is_weight(self) -> bool:
        """Whether the package brings its value."""
        return self.kind in WEIGHTS


@dataclass(frozen=True)
class Result:
    """A result of the program. `kind`: output, update (of an argument), generator."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Leaf:
    """A place in the module's arguments or results: of the program, or a value that is known.

    `result` with `argument`: the module gives back this argument itself.
    """

    argument: int | None = None
    result: int | None = None
    value: Any = None


@dataclass
class Signature:
    """How a program is called. Results stand in the program's order, what it asserts is last."""

    name: str
    platform: str  # of the plugin: "cpu", "tpu"
    topology: str | None  # of a TPU that the program was exported for
    arguments: list[Argument]
    results: list[Result]
    assertions: list[tuple[str, str]]  # kind, text with {} for the value
    random_draws: int  # by which a call moves the generator
    inputs: list[Leaf]  # leaves of (args, kwargs)
    outputs: list[Leaf]
    in_spec: str = field(repr=False)  # torch.utils._pytree.treespec_dumps
    out_spec: str = field(repr=False)

    @property
    def input_names(self) -> list[str]:
        """Names of the tensors that a call takes."""
        return [a.name for a in self.arguments if a.kind == "input"]

    @property
    def output_names(self) -> list[str]:
        """Names of the tensors that a call gives."""
        return [r.name for r in self.results if r.kind == "output"]

    def to_json(self) -> str:
        """As package.json holds it."""
        data = {
            "format": FORMAT,
            "made_by": {"torch_tpu": __version__, "torch": torch.__version__},
            **asdict(self),
            "assertions": [{"kind": kind, "text": text} for kind, text in self.assertions],
            "inputs": [_leaf_to_json(x) for x in self.inputs],
            "outputs": [_leaf_to_json(x) for x in self.outputs],
        }
        return json.dumps(data, indent=1, allow_nan=False)

    @staticmethod
    def from_json(text: str | bytes) -> Signature:
        """Raises PackageError for what `to_json` did not write, or a newer format."""
        try:
            data = json.loads(text)
            if data["format"] > FORMAT:
                raise PackageError(
                    f"the package has format {data['format']}, this torch_tpu reads up to {FORMAT}"
                )
            return Signature(
                name=data["name"],
                platform=data["platform"],
                topology=data["topology"],
                arguments=[
                    Argument(**{**a, "shape": tuple(a["shape"])}) for a in data["arguments"]
                ],
                results=[Result(**{**r, "shape": tuple(r["shape"])}) for r in data["results"]],
                assertions=[(a["kind"], a["text"]) for a in data["assertions"]],
                random_draws=data["random_draws"],
                inputs=[_leaf_from_json(x) for x in data["inputs"]],
                outputs=[_leaf_from_json(x) for x in data["outputs"]],
                in_spec=data["in_spec"],
                out_spec=data["out_spec"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise PackageError(f"package.json cannot be read: {error!r}") from error


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise PackageError(f"this torch has no dtype {name!r}")
    return found


def spec_text(spec: pytree.TreeSpec, what: str) -> str:
    try:
        return pytree.treespec_dumps(spec)
    except NotImplementedError as error:
        raise ExportError(
            f"{what} has a container that cannot be written to a file: {error}"
        ) from error


def spec_of(text: str) -> pytree.TreeSpec:
    try:
        return pytree.treespec_loads(text)
    except (NotImplementedError, KeyError, ValueError) as error:
        raise PackageError(
            f"a container of the package is not known here; import the module that registers it: "
            f"{error}"
        ) from error


def _leaf_to_json(leaf: Leaf) -> dict[str, Any]:
    if leaf.argument is None and leaf.result is None:
        value = leaf.value
        if isinstance(value, float) and not math.isfinite(value):
            value = {"float": repr(value)}
        return {"value": value}
    places = {"argument": leaf.argument, "result": leaf.result}
    return {k: v for k, v in places.items() if v is not None}


def _leaf_from_json(data: dict[str, Any]) -> Leaf:
    value = data.get("value")
    if isinstance(value, dict):
        value = float(value["float"])
    return Leaf(data.get("argument"), data.get("result"), value)
