"""cond, while_loop, scan and map of a program that is being traced, as its control flow.

A body is traced by itself, inside of the program around it, and becomes a region of one op
(src/trace/control.cpp). What cannot be traced that way runs by torch's own code: `scan` and `map`
are unrolled, a `while_loop` or a `cond` reads its condition, which a traced program cannot, and the
graph around it runs op by op. The reason is logged.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch._C import DispatchKey
from torch._higher_order_ops.cond import cond_op, cond_op_dense
from torch._higher_order_ops.map import map_dense, map_impl
from torch._higher_order_ops.scan import scan_op, scan_op_dense
from torch._higher_order_ops.while_loop import while_loop_dense, while_loop_op
from torch.utils import _pytree as pytree

from torch_tpu import _C, _flex_attention, precision
from torch_tpu._strides import laid_out

log = logging.getLogger(__name__)


@functools.cache
def register() -> None:
    """Have the operators call this module for tensors of `tpu`."""
    for operator, native, dense in (
        (cond_op, _cond, cond_op_dense),
        (while_loop_op, _while_loop, while_loop_dense),
        (scan_op, _scan, scan_op_dense),
        (map_impl, _map, map_dense),
    ):
        operator.py_impl(DispatchKey.PrivateUse1)(_kernel(operator.__name__, native, dense))
        operator._dispatch_cache.clear()
    _flex_attention.register()


def _kernel(name: str, native: Callable[..., Any], dense: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        device = _device(args)
        if device is None:
            return dense(*args, **kwargs)
        run = native
        if _C.Tracing.inside(device) is None:
            if native is not _while_loop:
                return dense(*args, **kwargs)
            run = _loop_alone
        try:
            return run(device, *args, **kwargs)
        except Exception as error:
            log.info("%s runs by torch's own code: %s", name, error)
            reason = f"{name} is no control flow of the program: {error}"
        try:
            return dense(*args, **kwargs)
        except Exception as error:
            error.add_note(reason)
            raise

    return kernel


def _device(args: Iterable[Any]) -> int | None:
    for x in pytree.tree_leaves(args):
        if isinstance(x, torch.Tensor) and x.device.type == "tpu":
            return x.device.index
    return None


# -- bodies ----------------------------------------------------------------------------------------


class _Body:
    """A traced subgraph."""

    def __init__(self, device: int, run: Callable[..., Any], inputs: Sequence[Any]) -> None:
        """`inputs`: tensors stand for those of a call; anything else is part of the code."""
        tracing = _C.Tracing.inside(device)
        if tracing is None:
            raise RuntimeError("no program is being traced")
        tracing.enter()
        try:
            with torch.no_grad():
                given = [_placeholder(tracing, x) for x in inputs]
                self.outputs = list(_leaves(_runner(run, given, tracing)(*given)))
            tensors = [x for x in self.outputs if isinstance(x, torch.Tensor)]
            self.number, self.captured = tracing.subgraph(tensors)
        finally:
            tracing.exit()

    def results(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """All results, in place of those that are tensors these."""
        rest = iter(tensors)
        return tuple(next(rest) if isinstance(x, torch.Tensor) else x for x in self.outputs)

    def check_others(self) -> None:
        """Only None may stand beside tensors: a number might differ from run to run."""
        for x in self.outputs:
            if x is not None and not isinstance(x, torch.Tensor):
                raise NotImplementedError(f"a result is a {type(x).__name__}")


def _placeholder(tracing: _C.Tracing, x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    if x.device.type != "tpu":
        raise NotImplementedError(f"it takes a tensor of {x.device}")
    strides = torch.empty(x.shape, device="meta").stride()
    return tracing.placeholder(list(x.shape), list(strides), x.dtype)


def _runner(run: Callable[..., Any], given: list[Any], tracing: _C.Tracing) -> Callable[..., Any]:
    """The code of a body; that of a graph with the user's lines, and for the strides it expects."""
    if not isinstance(run, fx.GraphModule):
        return run
    from torch_tpu import _graph

    for node in run.graph.nodes:
        if node.op == "get_attr" and _varies(run, node):
            raise NotImplementedError(f"it holds the tensor {node.target}")
    nodes = run.graph.find_nodes(op="placeholder")
    for i, (node, x) in enumerate(zip(nodes, given, strict=True)):
        fake = node.meta.get("val", node.meta.get("example_value"))
        if isinstance(x, torch.Tensor) and isinstance(fake, torch.Tensor):
            given[i] = _lying_as(fake, x)
    return _graph._Tracer(run, {}, tracing).run


def _varies(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Whether the attribute is a tensor of the device whose values may change between calls."""
    value: Any = graph
    for name in str(node.target).split("."):
        value = getattr(value, name)
    if not isinstance(value, torch.Tensor) or value.device.type != "tpu":
        return False
    return any(user.target is not torch.ops.aten.lift_fresh_copy.default for user in node.users)


def _lying_as(fake: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """`x`, which is row-major, in the order of dims in which `fake` lies."""
    strides = fake.stride()
    if fake.dim() != x.dim() or not all(isinstance(s, int) for s in strides) or x.numel() < 2:
        return x
    order = tuple(sorted(range(x.dim()), key=lambda d: -strides[d]))
    return x if order == tuple(range(x.dim())) else laid_out(x, order)


def _leaves(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else (result,)


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    return [x for x in values if isinstance(x, torch.Tensor)]


# -- operators -------------------------------------------------------------------------------------


def _cond(
    device: int,
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Sequence[Any],
) -> tuple[Any, ...]:
    if not isinstance(pred, torch.Tensor) or pred.device.type != "tpu":
        raise NotImplementedError("its condition is no tensor of the device")
    bodies = [_Body(device, f, operands) for f in (true_fn, false_fn)]
    for body in bodies:
        body.check_others()
    kinds = [[type(x) for x in body.outputs] for body in bodies]
    if kinds[0] != kinds[1]:
        raise NotImplementedError("its branches give results of different kinds")
    inputs = _tensors(operands)
    made = _C.control_flow(
        "cond",
        [[pred], *(inputs + body.captured for body in bodies)],
        [body.number for body in bodies],
    )
    return bodies[0].results(made)


def _while_loop(
    device: int,
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried: Sequence[Any],
    additional: Sequence[Any],
) -> tuple[Any, ...]:
    for x in carried:
        if not isinstance(x, torch.Tensor):
            raise NotImplementedError(f"it carries a {type(x).__name__}")
    inputs = (*carried, *additional)
    cond, body = _Body(device, cond_fn, inputs), _Body(device, body_fn, inputs)
    (holds,) = cond.outputs
    if not isinstance(holds, torch.Tensor) or holds.dtype != torch.bool or holds.dim() > 0:
        raise RuntimeError(
            f"cond_fn must return a boolean scalar tensor or a boolean but got {holds}"
        )
    if len(_tensors(body.outputs)) != len(carried) or len(body.outputs) != len(carried):
        raise NotImplementedError("its body does not give a tensor for each that it carries")
    extra = _tensors(additional)
    made = _C.control_flow(
        "while_loop",
        [list(carried), extra + cond.captured, extra + body.captured],
        [cond.number, body.number],
    )
    return tuple(made)


MOST = 64  # kinds of arguments of a body
# By body, then by the condition, arguments and modes: loops that no program is traced around.
_loops: weakref.WeakKeyDictionary[Any, dict[Any, _C.CompiledGraph]] = weakref.WeakKeyDictionary()


def _loop_alone(
    device: int,
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried: Sequence[Any],
    additional: Sequence[Any],
) -> tuple[Any, ...]:
    """A loop as a program of its own; numbers that it carries are read at its end."""
    numbers = {i: type(x) for i, x in enumerate(carried) if not isinstance(x, torch.Tensor)}
    if not set(numbers.values()) <= {int, bool}:
        raise NotImplementedError("it carries something besides tensors and whole numbers")
    place = torch.device("tpu", device)
    given = [torch.tensor(x, device=place) if i in numbers else x for i, x in enumerate(carried)]
    tensors = given + _tensors(additional)
    if any(x.device != place or x.is_conj() or x.is_neg() for x in tensors):
        raise NotImplementedError("not all its tensors lie on one device, as they are")
    if not isinstance(body_fn, fx.GraphModule):
        raise NotImplementedError("it is no graph")
    others = tuple(x for x in additional if not isinstance(x, torch.Tensor))
    kinds = tuple((x.shape, x.stride(), x.dtype) for x in tensors)
    known = _loops.setdefault(body_fn, {})
    key = (cond_fn, kinds, others, precision.get_precision(), torch.get_default_dtype())
    made = known[key](list(tensors), ()) if key in known else None
    if made is None:
        if len(known) >= MOST:
            known.clear()
        known[key] = _traced_loop(device, cond_fn, body_fn, given, additional)
        made = known[key](tensors, ())
    if made is None:
        raise NotImplementedError("its arguments do not fit those it was traced with")
    return tuple(numbers[i](x.item()) if i in numbers else x for i, x in enumerate(made))


def _traced_loop(
    device: int,
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried: Sequence[torch.Tensor],
    additional: Sequence[Any],
) -> _C.CompiledGraph:
    tracing = _C.Tracing(device)

    def given(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return tracing.placeholder(list(x.shape), list(x.stride()), x.dtype)

    tracing.enter()
    try:
        with torch.no_grad(), torch._C._DisableAutocast():
            inputs = [given(x) for x in carried], [given(x) for x in additional]
            return tracing.graph(list(_while_loop(device, cond_fn, body_fn, *inputs)))
    finally:
        tracing.exit()


def _scan(
    device: int,
    combine_fn: Callable[..., Any],
    init: Sequence[Any],
    xs: Sequence[torch.Tensor],
    additional: Sequence[Any],
) -> tuple[Any, ...]:
    if len(_tensors(init)) != len(init) or not xs:
        raise NotImplementedError("it carries something besides tensors, or scans nothing")
    # A slice with no memory of its own is enough to tell how the body's argument looks.
    slices = [x.select(0, 0) if len(x) else x.new_zeros(x.shape[1:]) for x in xs]
    body = _Body(device, combine_fn, (*init, *slices, *additional))
    body.check_others()
    if len(_tensors(body.outputs[: len(init)])) != len(init):
        raise NotImplementedError("its body does not give a tensor for each that it carries")
    made = _C.control_flow(
        "scan",
        [list(init), list(xs), _tensors(additional) + body.captured],
        [body.number, len(xs[0])],
    )
    return body.results(made)


def _map(
    device: int, f: Callable[..., Any], xs: Sequence[torch.Tensor], pos_args: Sequence[Any]
) -> tuple[Any, ...]:
    return _scan(device, f, (), xs, pos_args)
