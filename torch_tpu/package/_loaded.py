"""A package on the device of this process."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_tpu import _C
from torch_tpu.package._file import Contents
from torch_tpu.package._signature import Argument, Leaf, PackageError, dtype_name, dtype_of, spec_of


class Loaded:
    """A program as a function, called as the module that it was exported from.

    `weights` are its parameters, buffers and constants on the device, by name: the next call sees
    what is written into them, and what the program updates is in them. `signature` and `stablehlo`
    are those of the export; `why_compiled` says why the text was compiled, and is empty where the
    package's executable was taken. Results are new tensors, row-major and without gradient; one
    that the module took as an argument is that argument.
    """

    def __init__(self, contents: Contents, device: str | torch.device = "tpu") -> None:
        place = torch.device(device)
        if place.type != "tpu":
            raise ValueError(f'a package runs on a "tpu" device, got {device!r}')
        index = _C.current_device() if place.index is None else place.index
        self.device = torch.device("tpu", index)
        self.signature, self.stablehlo = contents.signature, contents.text
        s = self.signature
        here = _C.plugin_info()["platform_name"]
        if s.platform != here:
            made_for = f"the TPU {s.topology}" if s.topology else s.platform
            raise PackageError(
                f"{s.name} was made for {made_for}, this process has a device of {here}; export it "
                "for that device"
            )
        self._in_spec, self._out_spec = spec_of(s.in_spec), spec_of(s.out_spec)
        self._program = _C.LoadedProgram(
            [(dtype_of(a.dtype), list(a.shape), a.updated_by) for a in s.arguments],
            [(dtype_of(r.dtype), list(r.shape)) for r in s.results],
            s.assertions,
            self.stablehlo,
            contents.executable,
        )
        self.weights = {
            a.name: contents.weights[a.name].to(self.device) for a in s.arguments if a.is_weight
        }
        # The program's results that a call gives, in order, by their number.
        updates = {a.updated_by for a in s.arguments}
        self._given = [i for i in range(len(s.results)) if i not in updates]

    @property
    def why_compiled(self) -> str:
        """Why the text was compiled; empty where it was not."""
        return self._program.why_compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it. Raises TypeError for arguments of another structure than those of the export,
        ValueError for tensors of other types, or on other devices, and other constants.
        """
        s = self.signature
        leaves = self._leaves(args, kwargs)
        tensors: list[torch.Tensor | None] = [None] * len(s.arguments)
        for number, (leaf, value) in enumerate(zip(s.inputs, leaves, strict=True)):
            self._take(leaf, value, number, tensors)
        generator, before = None, None
        for i, a in enumerate(s.arguments):
            if a.is_weight:
                tensors[i] = self.weights[a.name]
            elif a.kind == "generator":
                generator = _C.default_generator(self.device.index)
                before = generator.get_state()
                tensors[i] = before.view(torch.int64).to(self.device).view(torch.uint64)
        with torch.no_grad():
            made = self._program([t.detach() for t in tensors if t is not None])
        if generator is not None and before is not None:
            from torch_tpu._rng_state import Offset

            generator.set_state(Offset(s.random_draws).after(before))
        results = dict(zip(self._given, made, strict=True))
        return pytree.tree_unflatten(
            [_result(x, tensors, results) for x in s.outputs], self._out_spec
        )

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        names = list(self._in_spec.child(1).context)
        if set(names) != set(kwargs):
            raise TypeError(
                f"{self.signature.name} was exported with the keyword arguments {names}, "
                f"got {list(kwargs)}"
            )
        leaves, spec = pytree.tree_flatten((args, {name: kwargs[name] for name in names}))
        if spec != self._in_spec:
            raise TypeError(
                f"{self.signature.name} was exported for arguments of the structure "
                f"{self._in_spec}, got {spec}"
            )
        return leaves

    def _take(
        self, leaf: Leaf, value: Any, number: int, tensors: list[torch.Tensor | None]
    ) -> None:
        if leaf.argument is None:
            if type(value) is not type(leaf.value) or value != leaf.value:
                raise ValueError(
                    f"argument {number} of {self.signature.name} is {value!r}; exported was "
                    f"{leaf.value!r}, which is part of the program"
                )
            return
        a = self.signature.arguments[leaf.argument]
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{a.name} is a {type(value).__name__}, a tensor is needed")
        if not _fits(value, a) or value.device != self.device:
            raise ValueError(
                f"{a.name} is {dtype_name(value.dtype)}{list(value.shape)} on {value.device}, the "
                f"program takes {a.dtype}{list(a.shape)} on {self.device}"
            )
        tensors[leaf.argument] = value


def _fits(value: torch.Tensor, a: Argument) -> bool:
    return tuple(value.shape) == a.shape and dtype_name(value.dtype) == a.dtype


def _result(
    leaf: Leaf, tensors: list[torch.Tensor | None], results: dict[int, torch.Tensor]
) -> Any:
    if leaf.argument is not None:
        return tensors[leaf.argument]
    return leaf.value if leaf.result is None else results[leaf.result]
