"""The Dynamo backend `tpu`, and the backend of a `torch.compile` that names none.

AOTAutograd makes forward and backward graphs; each is traced once through the recorder
(torch_tpu/_graph.py) and is one launch from then on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from torch_tpu import _C
from torch_tpu._graph import run_graph

Compiled = Callable[..., Any]


def _compile(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return run_graph(graph, sorted(_tpu_indices(graph, inputs)))


def tpu_backend(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Compiled:
    """`torch.compile(backend="tpu")`.

    `mode` is accepted and changes nothing: its values name what Inductor does. `options` must be
    empty. Raises ValueError for an option.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    if options:
        raise ValueError(f'the backend "tpu" knows no option {sorted(options)[0]!r}')
    backend = aot_autograd(
        fw_compiler=_compile,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    return backend(graph, inputs)


def default_backend(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Compiled:
    """The backend of a bare `torch.compile`: `tpu` for graphs that touch a tpu, else Inductor."""
    if _tpu_indices(graph, inputs):
        return tpu_backend(graph, inputs, mode=mode, options=options)
    return _inductor(mode, _frozen(options))(graph, inputs)  # type: ignore[no-any-return]


def _frozen(options: dict[str, Any] | None) -> tuple[tuple[str, Any], ...] | None:
    return tuple(sorted(options.items())) if options else None


@functools.lru_cache(maxsize=32)
def _inductor(mode: str | None, options: tuple[tuple[str, Any], ...] | None) -> Any:
    # What torch.compile(backend="inductor") itself uses.
    chosen = "default" if mode is None and options is None else mode
    return torch._TorchCompileInductorWrapper(  # type: ignore[no-untyped-call]
        chosen, dict(options) if options else None, None
    )


def _tpu_indices(graph: fx.GraphModule, inputs: Sequence[Any]) -> set[int]:
    """Indices of the tpu devices of a graph's inputs, attributes, constants and results."""
    found: set[int] = set()

    def note(value: Any) -> None:
        where = value if isinstance(value, torch.device) else None
        if isinstance(value, torch.Tensor):
            where = value.device
        if where is not None and where.type == "tpu":
            found.add(_C.current_device() if where.index is None else where.index)

    for value in (*inputs, *graph.parameters(), *graph.buffers()):
        note(value)
    for node in graph.graph.nodes:
        for value in (*node.args, *node.kwargs.values()):
            note(value)
        for key in ("example_value", "val"):
            torch.utils._pytree.tree_map_(note, node.meta.get(key))
    return found
