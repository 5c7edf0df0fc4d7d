"""A program of torch.export as StableHLO: its graph run on placeholders, as torch.compile's are.

No decomposition is chosen here: an op that torch composes of others is decomposed by the dispatcher
while it runs on placeholders, for this device and not for the one that the graph was captured on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    TensorArgument,
)
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from torch_tpu import _C, _control_flow, _graph, _rng_state
from torch_tpu._strides import laid_out
from torch_tpu.package import _file
from torch_tpu.package._signature import (
    Argument,
    ExportError,
    Leaf,
    Result,
    Signature,
    dtype_name,
    spec_text,
)

_KINDS = {
    InputKind.USER_INPUT: "input",
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
_MUTATIONS = (
    OutputKind.BUFFER_MUTATION,
    OutputKind.PARAMETER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
)
_OUTPUTS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)


@dataclass
class Lowered:
    """A program, its signature, and the tensors that are its weights, wherever they lie."""

    text: str
    signature: Signature
    weights: dict[str, torch.Tensor]


def lower(program: ExportedProgram, name: str, *, topology: str | None, inside: bool) -> Lowered:
    """Raises ExportError for what cannot be one program of fixed types."""
    _refuse_dynamic(program)
    _rng_state.register()
    _control_flow.register()
    lowering = _Lowering(program, name, topology)
    lowered = lowering.run(set())
    if not inside:
        return lowered
    fixed = {a.name for a in lowered.signature.arguments if a.is_weight and a.updated_by < 0}
    return lowering.run(fixed)


def _refuse_dynamic(program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else [value]
        for size in sizes:
            if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                raise ExportError(
                    f"{node.name} has a dynamic size ({size}), and a TPU program has fixed ones; "
                    "leave out dynamic_shapes and export once for each shape that is needed"
                )


@dataclass
class _Placeholder:
    """A tensor that the graph takes: `tensor` has no memory, `used` lies as the graph expects."""

    argument: Argument
    index: int
    tensor: torch.Tensor
    used: torch.Tensor
    version: int
    weight: torch.Tensor | None = None  # what it stands for


class _Lowering:
    def __init__(self, program: ExportedProgram, name: str, topology: str | None) -> None:
        self.program, self.name, self.topology = program, name, topology
        self.device = _C.current_device()
        self.graph = _for_device(program.graph_module, torch.device("tpu", self.device))
        self.placeholders: list[_Placeholder] = []
        self.by_node: dict[str, _Placeholder] = {}
        self.by_target: dict[str, _Placeholder] = {}

    def run(self, constants: set[str]) -> Lowered:
        """The program, with the weights of these names as constants."""
        self.placeholders, self.by_node, self.by_target = [], {}, {}
        for_tpu = self.topology is not None
        tracing = _C.Tracing(self.device, for_tpu)
        tracing.enter()
        try:
            with torch.no_grad(), torch._C._DisableAutocast():
                values = [self._given(tracing, *x) for x in self._inputs()]
                outputs = list(_ExportTracer(self.graph, {}, tracing).run(*values))
                tensors, leaves = self._outputs(outputs)
                for p in self.placeholders:
                    if p.used is not p.tensor and p.used._version != p.version:
                        p.tensor.copy_(p.used)
            embedded = {
                p.index: _file.raw_bytes(_host(p.weight))
                for p in self.placeholders
                if p.weight is not None and p.argument.name in constants
            }
            results = [Result(n, "output", dtype_name(t.dtype), tuple(t.shape)) for n, t in tensors]
            made = tracing.finish([t for _, t in tensors], True, False, embedded)
            draws = tracing.drawn
        finally:
            tracing.exit()
        return self._lowered(made, results, leaves, draws)

    def _inputs(self) -> Iterator[tuple[fx.Node, InputSpec]]:
        nodes = [n for n in self.graph.graph.nodes if n.op == "placeholder"]
        return zip(nodes, self.program.graph_signature.input_specs, strict=True)

    def _given(self, tracing: _C.Tracing, node: fx.Node, spec: InputSpec) -> Any:
        kind = _KINDS.get(spec.kind)
        if kind is None:
            raise ExportError(
                f"{node.name} is no tensor ({spec.kind.name}), which is not supported"
            )
        if isinstance(spec.arg, ConstantArgument):
            return spec.arg.value
        if not isinstance(spec.arg, TensorArgument):
            raise ExportError(f"{node.name} is a {type(spec.arg).__name__}, which is not supported")
        target = str(spec.target)
        like, weight = node.meta["val"], None
        if kind != "input":
            if not node.users and not self._written(target):
                return None
            weight = self._weight(target)
            like = weight
            if shared := self._same(weight):
                self.by_target[target] = shared
                return shared.used
        # The node's own name may be another: "input" is a word of Python's.
        name = spec.arg.name if kind == "input" else target
        _check_tensor(like, name)
        shape = list(like.shape)
        tensor = tracing.placeholder(shape, _row_major(shape), like.dtype)
        argument = Argument(name, kind, dtype_name(like.dtype), tuple(shape))
        order = _order(like)
        used = tensor if order is None else laid_out(tensor, order)
        made = _Placeholder(argument, len(self.placeholders), tensor, used, used._version, weight)
        self.placeholders.append(made)
        self.by_node[spec.arg.name] = made
        if kind != "input":
            self.by_target[target] = made
        return used

    def _weight(self, target: str) -> torch.Tensor:
        found = self.program.state_dict.get(target)
        if found is None:
            found = self.program.constants.get(target)
        if not isinstance(found, torch.Tensor):
            raise ExportError(f"{target} has no value in the exported program")
        return found.detach()

    def _written(self, target: str) -> bool:
        return any(
            o.target == target
            for o in self.program.graph_signature.output_specs
            if o.kind in _MUTATIONS
        )

    def _same(self, weight: torch.Tensor) -> _Placeholder | None:
        """Of a weight that is tied to this one."""
        for p in self.placeholders:
            w = p.weight
            if (
                w is not None
                and w.device == weight.device
                and weight.numel() > 0
                and w.data_ptr() == weight.data_ptr()
                and (w.dtype, w.shape, w.stride()) == (weight.dtype, weight.shape, weight.stride())
            ):
                return p
        return None

    def _outputs(self, values: list[Any]) -> tuple[list[tuple[str, torch.Tensor]], list[Leaf]]:
        """Tensors that the module gives, by name, and the leaves of its result."""
        itself = {id(p.used): p.index for p in self.placeholders}
        kept: list[Any] = []
        specs = self.program.graph_signature.output_specs
        for spec, value in zip(specs, values, strict=True):
            if spec.kind in _OUTPUTS:
                kept.append(value)
                continue
            if spec.kind not in _MUTATIONS:
                raise ExportError(f"a result of the kind {spec.kind.name} is not supported")
            table = self.by_node if spec.kind is OutputKind.USER_INPUT_MUTATION else self.by_target
            written = table[str(spec.target)]
            written.used.copy_(value)
            itself.setdefault(id(value), written.index)
        names = _output_names(self.program.call_spec.out_spec)
        tensors: list[tuple[str, torch.Tensor]] = []
        known: dict[int, int] = {}
        leaves = []
        for name, value in zip(names, kept, strict=True):
            if not isinstance(value, torch.Tensor):
                if not (value is None or isinstance(value, (bool, int, float, str))):
                    raise ExportError(
                        f"{name} is a {type(value).__name__}; tensors, numbers, texts and None can "
                        "be results"
                    )
                leaves.append(Leaf(value=value))
                continue
            if value.device.type != "tpu" or value.layout is not torch.strided:
                raise ExportError(
                    f"{name} is a {value.layout} tensor on {value.device}; only strided tensors of "
                    "the device can be results"
                )
            if id(value) not in known:
                known[id(value)] = len(tensors)
                tensors.append((name, _graph._stored(value)))
            leaves.append(Leaf(result=known[id(value)], argument=itself.get(id(value))))
        return tensors, leaves

    def _lowered(
        self, made: dict[str, Any], results: list[Result], leaves: list[Leaf], draws: int
    ) -> Lowered:
        arguments: list[Argument] = []
        weights: dict[str, torch.Tensor] = {}
        numbers: dict[int, int] = {}  # of the arguments, by placeholder
        for kind, index, updated_by in made["arguments"]:
            if kind == "placeholder":
                p = self.placeholders[index]
                numbers[index] = len(arguments)
                argument = replace(p.argument, updated_by=updated_by)
                if p.weight is not None:
                    weights[argument.name] = p.weight
                    if updated_by >= 0:
                        self._refuse_shared(p)
            elif kind == "constant":
                value = made["constants"][index]
                argument = Argument(
                    f"constant {index}", "constant", dtype_name(value.dtype), tuple(value.shape)
                )
                weights[argument.name] = value
            else:
                argument = Argument("generator", "generator", "uint64", (2,), updated_by)
            arguments.append(argument)
        updates = sorted(
            ((a.updated_by, a) for a in arguments if a.updated_by >= 0), key=lambda x: x[0]
        )
        for number, a in updates:
            assert number == len(results)
            kind = "generator" if a.kind == "generator" else "update"
            results.append(Result(a.name, kind, a.dtype, a.shape))
        inputs = []
        for _, spec in self._inputs():
            if spec.kind is not InputKind.USER_INPUT:
                continue
            if isinstance(spec.arg, ConstantArgument):
                inputs.append(Leaf(value=spec.arg.value))
            else:
                inputs.append(Leaf(argument=numbers[self.by_node[spec.arg.name].index]))
        outputs = [
            leaf if leaf.argument is None else replace(leaf, argument=numbers.get(leaf.argument))
            for leaf in leaves
        ]
        call = self.program.call_spec
        signature = Signature(
            name=self.name,
            platform="tpu" if self.topology else _C.plugin_info()["platform_name"],
            topology=self.topology,
            arguments=arguments,
            results=results,
            assertions=made["assertions"],
            random_draws=draws,
            inputs=inputs,
            outputs=outputs,
            in_spec=spec_text(call.in_spec, "the module's arguments"),
            out_spec=spec_text(call.out_spec, "the module's result"),
        )
        return Lowered(made["text"], signature, weights)

    def _refuse_shared(self, written: _Placeholder) -> None:
        """A weight that is written must not share memory with another that is one more argument."""
        a = written.weight
        assert a is not None
        for p in self.placeholders:
            b = p.weight
            if p is written or b is None or b.device != a.device or not a.numel():
                continue
            if a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and b.numel():
                raise ExportError(
                    f"{written.argument.name} is written and shares memory with "
                    f"{p.argument.name}; give each memory of its own"
                )


class _ExportTracer(_graph._Tracer):
    """As torch.compile's, but an error names the node."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.extra_traceback = False

    def run_node(self, n: fx.Node) -> Any:
        try:
            return super().run_node(n)
        except ExportError:
            raise
        except Exception as error:
            text = str(error).strip() or type(error).__name__
            raise ExportError(f"{n.target} ({n.name}) cannot be exported: {text}") from error


def _for_device(module: fx.GraphModule, device: torch.device) -> fx.GraphModule:
    """A copy whose nodes make their tensors on the device, those of nested graphs too."""
    graph = fx.Graph()
    result = graph.graph_copy(module.graph, {})
    graph.output(result)

    def moved(x: Any) -> Any:
        return device if isinstance(x, torch.device) and x.type != "meta" else x

    attributes: dict[str, Any] = {}
    for node in graph.nodes:
        node.args = map_aggregate(node.args, moved)
        node.kwargs = map_aggregate(node.kwargs, moved)
        if node.target is torch.ops.higher_order.wrap_with_autocast:
            node.args = ("tpu", *node.args[1:])
        if node.op == "get_attr":
            value = _graph._attribute(module, node)
            nested = isinstance(value, fx.GraphModule)
            attributes[str(node.target)] = _for_device(value, device) if nested else value
    return fx.GraphModule(attributes, graph)


def _check_tensor(t: torch.Tensor, name: str) -> None:
    if t.layout is not torch.strided or not _file.supported(t.dtype):
        raise ExportError(f"{name} is a {t.layout} tensor of {t.dtype}, which is not supported")


def _host(weight: torch.Tensor) -> torch.Tensor:
    if weight.device.type == "meta" or type(weight) not in (torch.Tensor, torch.nn.Parameter):
        raise ExportError(
            f"a weight is a {type(weight).__name__} on {weight.device} and has no values; load the "
            "weights before the export"
        )
    return weight.detach().cpu().resolve_conj().resolve_neg().contiguous()


def _row_major(shape: list[int]) -> list[int]:
    strides, at = [], 1
    for size in reversed(shape):
        strides.append(at)
        at *= max(size, 1)
    return strides[::-1]


def _order(t: torch.Tensor) -> tuple[int, ...] | None:
    """Dims by falling stride, where that is no row-major order and the tensor is dense."""
    if t.is_contiguous() or 0 in t.stride():
        return None
    strides = t.stride()
    order = tuple(sorted(range(t.dim()), key=lambda d: -strides[d]))
    return order if t.permute(order).is_contiguous() else None


def _output_names(spec: pytree.TreeSpec) -> list[str]:
    """A name for each leaf of the result: "output", "0", "last_hidden_state", "cache.1"."""
    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    names: list[str] = []
    for path, _ in pytree.tree_flatten_with_path(tree)[0]:
        parts = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path]
        name = ".".join(parts).replace("/", ".") or "output"
        while name in names:
            name += "_"
        names.append(name)
    return names
