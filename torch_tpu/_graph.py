"""A graph of AOTAutograd as a callable: traced once, one launch a call.

The first call runs the graph on placeholders, through the recorder that eager mode uses; from then
on the recording is repeated as a whole (src/bridge/graph.h), without Python. A graph is cut at
nodes that cannot be recorded once and for all, because they read values or run code that may do
anything; those run through the recorder at every call.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.passes.split_module import split_module
from torch.utils import _pytree as pytree

from torch_tpu import _C, _artifacts, _control_flow, _padding_math, _padding_rules, _rng_state  # noqa: F401
from torch_tpu import precision as precisions
from torch_tpu._padding import (
    Array,
    NotPaddable,
    PaddedGraph,
    PaddedProgram,
    Sizes,
    is_symbolic,
    size_of,
)
from torch_tpu._strides import laid_out
from torch_tpu.mode import EagerMode

log = logging.getLogger(__name__)

# Namespaces of operators that do nothing but compute their results.
_PURE = ("aten", "prims", "inductor_prims", "quantized_decomposed", "torchvision", "tpu")
# Higher-order operators whose own eager code runs on placeholders, or reads a value and so ends
# the tracing.
_HIGHER_ORDER = (
    "associative_scan cond flex_attention flex_attention_backward invoke_subgraph map_impl "
    "run_and_save_rng_state run_with_rng_state scan while_loop"
).split()


def run_graph(
    graph: fx.GraphModule, devices: Sequence[int], pad: bool = True
) -> Callable[[list[Any]], Any]:
    """A callable, in AOTAutograd's boxed convention, that runs `graph`.

    `devices`: indices of the tpu devices that it touches. `pad`: whether sizes that are symbols are
    padded, so that few programs serve all (torch_tpu/_padding.py).
    """
    _rng_state.register()
    _control_flow.register()
    _artifacts.record()
    if len(devices) != 1:
        return _boxed(_OpByOp(graph, devices, f"it touches {len(devices)} tpu devices"))
    apart = _not_recordable(graph)
    if not apart:
        return _boxed(_Recorded(graph, devices[0], pad))
    for node, why in apart.items():
        log.info("%s of a compiled graph runs by itself: %s", node.name, why)
    return _boxed(_Pieces(graph, devices[0], set(apart), pad))


def _boxed(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def boxed(args: list[Any]) -> Any:
        return run(args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def _not_recordable(graph: fx.GraphModule) -> dict[fx.Node, str]:
    """Nodes of which running them once does not tell what they do the next time, and why."""
    apart: dict[fx.Node, str] = {}
    varying: set[fx.Node] = set()  # tensors of the host that differ from call to call
    for node in graph.graph.nodes:
        value, target = node.meta.get("val"), node.target
        on_host = _on_host(value)
        why = None
        if node.op == "placeholder":
            if on_host and node.users and not _is_rng_state(node):
                varying.add(node)
            continue
        if node.op in ("get_attr", "output"):
            continue
        if given := varying.intersection(node.all_input_nodes):
            why = f"{next(iter(given)).name} lies on the host"
        elif isinstance(target, torch._ops.OpOverload):
            if target.namespace not in _PURE:
                why = f"nothing is known of {target}"
            elif _depends_on_values(node, target):
                why = f"{target} depends on values"
            elif on_host and torch.Tag.nondeterministic_seeded in target.tags:
                why = f"{target} draws numbers on {value.device}"
        elif isinstance(target, torch._ops.HigherOrderOperator):
            if target.__name__ not in _HIGHER_ORDER:
                why = f"nothing is known of {target}"
            elif any(map(_not_recordable, _subgraphs(graph, node))):
                why = f"{target} contains such nodes"
            elif not free_unbacked_symbols(value) <= _known_symbols(node):
                why = f"{target} gives numbers"
        elif node.op != "call_function":
            why = f"it is a {node.op}"
        if why is not None:
            apart[node] = why
            if on_host:
                varying.add(node)
    return apart


def _on_host(fake: Any) -> bool:
    return isinstance(fake, torch.Tensor) and fake.device.type != "tpu"


def _depends_on_values(node: fx.Node, target: torch._ops.OpOverload) -> bool:
    if torch.Tag.data_dependent_output in target.tags:
        return True
    # x[index] has that tag for the sake of masks.
    return torch.Tag.dynamic_output_shape in target.tags and not free_unbacked_symbols(
        node.meta.get("val")
    ) <= _known_symbols(node)


def _known_symbols(node: fx.Node) -> set[Any]:
    """Numbers that depend on data and are known when the node begins: its arguments have them."""
    return set(free_unbacked_symbols([x.meta.get("val") for x in node.all_input_nodes]))


def _subgraphs(graph: fx.GraphModule, node: fx.Node) -> Iterator[fx.GraphModule]:
    for x in node.all_input_nodes:
        if x.op == "get_attr" and isinstance(found := _attribute(graph, x), fx.GraphModule):
            yield found


def _is_rng_state(placeholder: fx.Node) -> bool:
    """Whether the argument is nothing but the state that random ops begin with."""
    return bool(placeholder.users) and all(
        user.target is _rng_state.REPLAY and placeholder not in user.args[1:]
        for user in placeholder.users
    )


def _attribute(graph: fx.GraphModule, node: fx.Node) -> Any:
    value: Any = graph
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value


class _Recorded:
    """A graph that is traced once for each kind of arguments."""

    MOST = 64  # kinds; another one runs op by op

    def __init__(self, graph: fx.GraphModule, device: int, pad: bool = True) -> None:
        self.graph, self.device = graph, device
        # Tensors that the graph itself holds are arguments, too: their values may change.
        self.attributes = {
            node: value
            for node in graph.graph.nodes
            if node.op == "get_attr"
            and isinstance(value := _attribute(graph, node), torch.Tensor)
            and value.device.type == "tpu"
        }
        self.held = tuple(self.attributes.values())
        # Tensors of the host that no op takes: a recording does not take them either. Which of them
        # are results, by the number of the result.
        inputs = graph.graph.find_nodes(op="placeholder")
        self.unused = {
            n
            for n, node in enumerate(inputs)
            if _on_host(node.meta.get("val")) and all(u.op == "output" for u in node.users)
        }
        results = graph.graph.output_node().args[0]
        given = {inputs[n]: n for n in self.unused}
        self.passed = {i: given[x] for i, x in enumerate(results) if x in given}  # type: ignore[arg-type]
        # By what shapes the code besides the tensors: sizes that are arguments, and generators.
        self.programs: dict[tuple[Any, ...], list[_Program]] = {}
        self.op_by_op: _OpByOp | None = None
        self.padded = self._padded() if pad else None
        self.padded_programs: dict[tuple[int, ...], list[PaddedProgram]] = {}
        self.last: _C.CompiledGraph | None = None  # tensors of the device in, tensors out

    def __call__(self, args: list[Any]) -> Any:
        if self.last is not None and (results := self.last(args, self.held)) is not None:
            return results
        if self.padded is not None:
            results = self._call_padded(self.padded, args)
            if results is not None:
                return results
        if self.op_by_op is None:
            others = tuple(a for a in args if not isinstance(a, torch.Tensor))
            programs = self.programs.setdefault(others, [])
            for program in programs:
                if (results := program(args, self.held)) is not None:
                    self.last = program.graph if program.plain and not others else None
                    return results
            try:
                if sum(map(len, self.programs.values())) >= self.MOST:
                    raise RuntimeError(f"it was called in {self.MOST} ways")
                program = self._trace(args)
                programs.append(program)
                if (results := program(args, self.held)) is not None:
                    _artifacts.record()
                    return results
                raise RuntimeError("this thread is tracing a program of its own")
            except Exception as error:
                if not args:
                    raise  # it ran
                self.op_by_op = _OpByOp(self.graph, [self.device], f"{error}")
        return self.op_by_op(args)

    def _padded(self) -> PaddedGraph | None:
        try:
            return PaddedGraph(self.graph)
        except NotPaddable as reason:
            log.debug("a compiled graph is not padded: %s", reason)
            return None

    def _call_padded(self, padded: PaddedGraph, args: list[Any]) -> list[Any] | None:
        """The results of a program for many sizes; None where there is none for these."""
        numbers = padded.numbers(args)
        bounds = padded.bounds(numbers)
        if bounds is None or _C.is_tracing(self.device):
            return None
        padded.verify(numbers)
        programs = self.padded_programs.setdefault(bounds, [])
        for program in programs:
            if (results := program(args, numbers, self.held)) is not None:
                return results

        def run(sizes: Sizes, inputs: list[Any], held: list[torch.Tensor]) -> list[Any]:
            kept = {n: _whole(x) for n, x in zip(self.attributes, held, strict=True)}
            return list(_PaddedTracer(self.graph, kept, sizes).run(*inputs))

        try:
            program = PaddedProgram(padded, bounds, self.device, run, args, self.held)
        except Exception as reason:
            log.info("a compiled graph has a program for each size: %s", reason)
            self.padded = None
            return None
        programs.append(program)
        results = program(args, numbers, self.held)
        _artifacts.record()
        return results

    def _trace(self, args: list[Any]) -> _Program:
        tracing = _C.Tracing(self.device)
        states: list[tuple[int, torch.Generator]] = []

        def given(n: int, x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            if n in self.unused:
                return None
            if x.device.type == "cpu":  # the state of a generator: _is_rng_state
                states.append((n, torch.Generator("tpu")))
                return states[-1][1]
            return tracing.placeholder(list(x.shape), list(x.stride()), x.dtype)

        tracing.enter()
        try:
            with torch.no_grad(), torch._C._DisableAutocast():
                inputs = [given(n, x) for n, x in enumerate(args)]
                held = {node: given(0, x) for node, x in self.attributes.items()}
                outputs = list(_Tracer(self.graph, held, tracing).run(*inputs))
            tensors = [_stored(x) if isinstance(x, torch.Tensor) else None for x in outputs]
            return _Program(
                tracing.graph(tensors), outputs, states, self.unused, self.passed, self.device
            )
        finally:
            tracing.exit()


class _Program:
    """One recording, and what the graph takes and gives besides tensors of the device."""

    def __init__(
        self,
        graph: _C.CompiledGraph,
        outputs: list[Any],
        states: list[tuple[int, torch.Generator]],
        unused: set[int],
        passed: dict[int, int],
        device: int,
    ) -> None:
        self.graph, self.states, self.passed = graph, states, passed
        self.apart = {n for n, _ in states} | unused  # arguments that are no tensors of the device
        self.generator = _C.default_generator(device)
        self.others = [
            (i, x)
            for i, x in enumerate(outputs)
            if x is not None and not isinstance(x, torch.Tensor)
        ]
        self.plain = not self.others and not self.apart
        self.offsets = [(i, x) for i, x in self.others if isinstance(x, _rng_state.Offset)]

    def __call__(self, args: list[Any], held: tuple[torch.Tensor, ...]) -> list[Any] | None:
        tensors, apart = args, {}
        if self.apart:
            apart = {n: args[n] for n in sorted(self.apart)}
            tensors = [x for n, x in enumerate(args) if n not in apart]
            args.clear()
            for n, generator in self.states:
                generator.set_state(apart[n])
        before = self.generator.get_state() if self.offsets else None
        results = self.graph(tensors, held)  # empties the list
        if results is None:
            for n, x in apart.items():
                tensors.insert(n, x)
            args[:] = tensors
            return None
        for i, value in self.others:
            results[i] = value
        for i, n in self.passed.items():
            results[i] = apart[n]
        if before is not None:
            for i, offset in self.offsets:
                results[i] = offset.after(before)
        return results


class _Pieces:
    """A graph cut at nodes that have to run by themselves; what is between them is recorded."""

    def __init__(self, graph: fx.GraphModule, device: int, apart: set[fx.Node], pad: bool) -> None:
        number, numbers, alone = 0, {}, set()
        for node in graph.graph.nodes:
            if node in apart:
                number += 1
                alone.add(f"submod_{number}")
            numbers[node] = number
            number += node in apart
        cut = split_module(
            graph, graph, numbers.__getitem__, keep_original_order=True, tuple_return=True
        )
        for name, piece in cut.named_children():
            if name in alone:
                run: Any = _OpByOp(piece, [device], "it is cut out of another")  # type: ignore[arg-type]
            else:
                run = _Recorded(piece, device, pad)  # type: ignore[arg-type]
            setattr(cut, name, _Piece(run))
        # The generated function empties the list of arguments, so that memory can be reused early.
        cut.graph.set_codegen(fx.graph._BoxedCodeGen())
        cut.recompile()
        self.pieces = cut

    def __call__(self, args: list[Any]) -> Any:
        return self.pieces.forward(args)


class _Piece(torch.nn.Module):
    def __init__(self, run: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *args: Any) -> tuple[Any, ...]:
        return tuple(self.run(list(args)))


class _OpByOp:
    """A graph that runs through the recorder at every call, and is launched at its end."""

    def __init__(self, graph: fx.GraphModule, devices: Sequence[int], reason: str) -> None:
        log.info("a compiled graph runs op by op: %s", reason)
        self.graph, self.devices = graph, devices
        self.forward: Callable[[list[Any]], Any] | None = None

    def __call__(self, args: list[Any]) -> Any:
        for index in self.devices:
            _C.begin_graph(index)
        _C.push_mode(EagerMode.DEFER_AND_FUSE.value)
        try:
            result = self._first_run(args) if self.forward is None else self.forward(args)
        finally:
            _C.pop_mode()
        for index in self.devices:
            _C.end_graph(index)
        return result

    def _first_run(self, args: list[Any]) -> Any:
        interpreter = _Interpreter(self.graph, {})
        result = interpreter.boxed_run(args)
        if any(precisions.ANNOTATION in n.meta.get("custom", {}) for n in self.graph.graph.nodes):
            return result  # the graph's own code knows nothing of it
        for node, order in interpreter.orders.items():
            with self.graph.graph.inserting_after(node):
                copy = self.graph.graph.call_function(laid_out, (node, order))
            node.replace_all_uses_with(copy)
            copy.args = (node, order)
        # The generated function empties the list of arguments, so that memory can be reused early.
        self.graph.graph.set_codegen(fx.graph._BoxedCodeGen())
        self.graph.recompile()
        self.forward = self.graph.forward
        return result


class _Interpreter(fx.Interpreter):
    """Runs a graph; results lie as their fake tensors do, and ops have the lines of the user.

    Kernels lay results out as the CPU does, while the graph was made for the strides of its fake
    tensors: where the two differ, `orders` tells in which order of dims a copy lies.
    """

    def __init__(self, graph: fx.GraphModule, held: dict[fx.Node, torch.Tensor]) -> None:
        super().__init__(graph)
        self.held = held
        self.sizes: dict[Any, int] = {}  # of this run, by symbol
        self.orders: dict[fx.Node, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n in self.held:
            return self.held[n]
        with _line(n), _precision(n):
            result = super().run_node(n)
            fake = n.meta.get("val")
            if isinstance(result, int) and isinstance(fake, torch.SymInt):
                self.sizes[fake.node.expr] = result
            elif order := self.expected_order(n, fake, result):
                self.orders[n] = order
                return laid_out(result, order)
        return result

    def expected_order(self, node: fx.Node, fake: Any, result: Any) -> tuple[int, ...] | None:
        """The order of dims in which the result should lie, if it lies in another."""
        if not (isinstance(result, torch.Tensor) and isinstance(fake, torch.Tensor)):
            return None
        if node.op != "call_function" or result.device.type != "tpu" or result.dim() != fake.dim():
            return None
        schema = getattr(node.target, "_schema", None)
        if schema is not None and any(r.alias_info is not None for r in schema.returns):
            return None  # a view lies as what it views
        strides = [n for s in fake.stride() if (n := self.value(s)) is not None]
        if result.numel() == 0 or len(strides) < result.dim():
            return None
        order = tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))
        wanted = [d for d in order if result.size(d) != 1]
        dense, at = 1, {}
        for d in reversed(wanted):
            at[d], dense = dense, dense * result.size(d)
        if any(strides[d] != at[d] for d in wanted):
            return None  # gaps and overlaps
        if all(result.stride(d) == at[d] for d in wanted):
            return None
        return order

    def value(self, size: int | torch.SymInt) -> int | None:
        """A size in this run; None where it depends on data."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        number = expression.xreplace(self.sizes) if hasattr(expression, "xreplace") else expression
        return int(number) if getattr(number, "is_number", True) else None


class _Tracer(_Interpreter):
    """The same on placeholders."""

    def __init__(
        self, graph: fx.GraphModule, held: dict[fx.Node, torch.Tensor], tracing: _C.Tracing
    ) -> None:
        super().__init__(graph, held)
        self.tracing = tracing

    def call_function(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if target is _rng_state.SAVE:
            drawn = _rng_state.Offset(self.tracing.drawn)
            return drawn, super().call_function(args[0], args[1:], kwargs)
        if target is _rng_state.REPLAY:
            state, op, *rest = args
            with _rng_state.drawing_from(state):
                return super().call_function(op, tuple(rest), kwargs)
        return super().call_function(target, args, kwargs)


class _PaddedTracer(_Interpreter):
    """Runs a graph on Arrays; sizes are the symbols of the fake tensors."""

    def __init__(self, graph: fx.GraphModule, held: dict[fx.Node, Any], sizes: Sizes) -> None:
        super().__init__(graph, held)
        self.padding = sizes

    def run_node(self, n: fx.Node) -> Any:
        fake = n.meta.get("val")
        is_size = isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool))
        if n.op == "call_function" and is_size:
            return fake
        if n.op != "call_function" or n.target is operator.getitem:
            value = self.held[n] if n in self.held else getattr(self, n.op)(*self._called(n))
            return fake if is_size else value
        if n.target in _CONDITIONS:
            return None  # PaddedGraph.verify
        _, args, kwargs = self._called(n)
        with _line(n), _precision(n):
            if any(map(_varies, pytree.tree_leaves((args, kwargs, fake)))):
                return _padding_rules.apply(self.padding, n, args, kwargs)
            args, kwargs = pytree.tree_map(_without_padding, (args, kwargs))
            result = self.call_function(n.target, args, kwargs)
            if order := self.expected_order(n, fake, result):
                result = laid_out(result, order)
            return pytree.tree_map_only(torch.Tensor, _whole, result)

    def _called(self, n: fx.Node) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return n.target, args, kwargs


# Nodes that say what holds of sizes.
_CONDITIONS = (
    torch.ops.aten._assert_scalar.default,
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
)


def _whole(t: torch.Tensor) -> Array:
    """An array without padding."""
    return Array(t, tuple((int(s),) for s in t.shape))


def _varies(x: Any) -> bool:
    if isinstance(x, torch.Tensor):
        return any(is_symbolic(size_of(s)) for s in x.shape)
    return x.padded if isinstance(x, Array) else is_symbolic(size_of(x))


def _without_padding(x: Any) -> Any:
    if isinstance(x, Array):
        return x.tensor
    return size_of(x) if isinstance(x, torch.SymInt) else x


def _precision(node: fx.Node) -> contextlib.AbstractContextManager[Any]:
    """The precision that the user's code asks for around the node."""
    value = node.meta.get("custom", {}).get(precisions.ANNOTATION)
    if value is None:
        return contextlib.nullcontext()
    return precisions.precision(precisions.Precision(value))


@contextlib.contextmanager
def _line(node: fx.Node) -> Iterator[None]:
    """Ops inside are recorded under the user's line that the node stands for."""
    found = re.findall(r'File "([^"]+)", line (\d+), in (.+)', node.stack_trace or "")
    if not found:
        yield
        return
    file, line, function = found[-1]
    _C.push_path(f"{file}:{line} in {function}")
    try:
        yield
    finally:
        _C.pop_path()


def _stored(x: torch.Tensor) -> torch.Tensor:
    """The tensor with memory of its own where it has none, because all is known to be zero."""
    return x.clone() if x._is_zerotensor() else x
