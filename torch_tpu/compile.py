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


# Torch's names for how much to spend on a program. XLA has one way to compile, and a launch of a
# whole graph is what "reduce-overhead" asks for: all mean the same here.
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def _compile(graph: fx.GraphModule, inputs: Sequence[Any], pad: bool) -> Compiled:
    return run_graph(graph, sorted(_tpu_indices(graph, inputs)), pad)


def _options(given: dict[str, Any] | None) -> bool:
    """Whether to pad sizes that change, from `options=`."""
    unknown = sorted(set(given or {}) - {"pad_sizes"})
    if unknown:
        raise ValueError(f'the backend "tpu" has no option {unknown[0]!r}; it has: pad_sizes')
    pad = (given or {}).get("pad_sizes", True)
    if not isinstance(pad, bool):
        raise ValueError(f"the option pad_sizes is True or False, not {pad!r}")
    return pad


def tpu_backend(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Compiled:
    """`torch.compile(backend="tpu")`.

    `mode`: one of MODES, which all mean the same. `options`: `{"pad_sizes": False}` compiles a
    program for each size where sizes change, instead of one for many (torch_tpu/_padding.py).
    Raises ValueError for any other mode or option.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    if mode is not None and mode not in MODES:
        raise ValueError(f'the backend "tpu" has no mode {mode!r}; it has: {", ".join(MODES)}')
    backend = aot_autograd(
        fw_compiler=functools.partial(_compile, pad=_options(options)),
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
