"""The Dynamo backend `tpu`, and the backend of a `torch.compile` that names none.

AOTAutograd makes forward and backward graphs; each runs op by op through the recorder in fused
mode, so that a graph becomes few programs, and is launched at its end without waiting.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from torch_tpu import _C
from torch_tpu.mode import EagerMode

Compiled = Callable[..., Any]


def _run_fused(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """A callable, in AOTAutograd's boxed convention, that runs `graph` in fused mode."""
    devices = sorted(_tpu_indices(graph, inputs))
    forward: Compiled | None = None

    def run(args: list[Any]) -> Any:
        nonlocal forward
        for index in devices:
            _C.begin_graph(index)
        _C.push_mode(EagerMode.DEFER_AND_FUSE.value)
        try:
            if forward is None:
                result, forward = _first_run(graph, args)
            else:
                result = forward(args)
        finally:
            _C.pop_mode()
        for index in devices:
            _C.end_graph(index)
        return result

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _first_run(graph: fx.GraphModule, args: list[Any]) -> tuple[Any, Compiled]:
    """The graph's result, and what runs it from now on, in the same convention.

    Kernels lay results out as the CPU does, while the graph was made for the strides of its fake
    tensors. The first run finds where the two differ, and the graph gets a copy there.
    """
    checked = _CheckedStrides(graph)
    result = checked.boxed_run(args)
    for node, order in checked.orders.items():
        with graph.graph.inserting_after(node):
            copy = graph.graph.call_function(_laid_out, (node, order))
        node.replace_all_uses_with(copy)
        copy.args = (node, order)
    # The generated function empties the list of arguments, so that memory can be reused early.
    graph.graph.set_codegen(fx.graph._BoxedCodeGen())
    graph.recompile()
    return result, graph.forward


def _laid_out(x: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """The same tensor, stored with its dims in `order`, outermost first."""
    back = sorted(range(len(order)), key=order.__getitem__)
    return x.permute(order).contiguous().permute(back)


class _CheckedStrides(fx.Interpreter):
    """Runs a graph, giving results the order of dims that their fake tensors have."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.orders: dict[fx.Node, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if order := _expected_order(n, result):
            self.orders[n] = order
            return _laid_out(result, order)
        return result


def _expected_order(node: fx.Node, result: Any) -> tuple[int, ...] | None:
    """The order of dims in which the result should lie, if it lies in another."""
    fake = node.meta.get("val")
    if not (isinstance(result, torch.Tensor) and isinstance(fake, torch.Tensor)):
        return None
    if node.op != "call_function" or result.device.type != "tpu" or result.dim() != fake.dim():
        return None
    schema = getattr(node.target, "_schema", None)
    if schema is not None and any(r.alias_info is not None for r in schema.returns):
        return None  # a view lies as what it views

    def order(t: torch.Tensor) -> tuple[int, ...]:
        # Equal strides (of sizes of 1) in the order of the dims.
        return tuple(sorted(range(t.dim()), key=lambda d: -int(t.stride()[d])))

    wanted = [d for d in order(fake) if result.size(d) != 1]
    dense, at = 1, {}
    for d in reversed(wanted):
        at[d], dense = dense, dense * result.size(d)
    if result.numel() == 0 or any(int(fake.stride()[d]) != at[d] for d in wanted):
        return None  # nothing to order, or gaps and overlaps
    if all(result.stride(d) == at[d] for d in wanted):
        return None
    return order(fake)


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
        fw_compiler=_run_fused,
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
