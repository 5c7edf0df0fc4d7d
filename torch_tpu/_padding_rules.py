"""How ops run on padded arrays (torch_tpu/_padding.py): a rule for each kind of op.

Here those that compute element by element, or move elements; the others are in _padding_math.py.

A rule takes the run (Padding), the node and the op's arguments by name, and gives an Array, a
tuple of them, or a tensor without padding. What it may rely on: of a padded dim nothing but the
real elements has meaning. What it has to do: keep padding out of real elements, also as 0 * NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import sympy
import torch
from torch import fx

from torch_tpu._padding import (
    Array,
    Dim,
    NotPaddable,
    Size,
    Sizes,
    is_symbolic,
    joined,
    size,
    size_of,
    sizes_of,
    symbolic,
)

aten, prims = torch.ops.aten, torch.ops.prims
Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}
_TO_THE_END = 2**62


def rule(*ops: Any) -> Callable[[Rule], Rule]:
    def add(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, f))
        return f

    return add


class Padding:
    """The run of one op."""

    def __init__(self, sizes: Sizes, node: fx.Node) -> None:
        self.sizes = sizes
        target: Any = node.target
        self.op, self.kind = target, target.overloadpacket
        self.fake = node.meta["val"]

    def refuse(self, why: str) -> NotPaddable:
        return NotPaddable(f"{self.op}: {why}")

    def plain(self, x: Any) -> Any:
        """An argument as the op itself takes it, padding and all."""
        if isinstance(x, Array):
            return x.tensor
        if isinstance(x, (list, tuple)):
            return type(x)(map(self.plain, x))
        if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.sizes.value(x)
        return x

    def call(self, a: SimpleNamespace, /, **changed: Any) -> Any:
        """The op on its arguments as they are, but for those given."""
        values = {**vars(a), **changed}
        schema, args, kwargs = self.op._schema, [], {}
        for parameter in schema.arguments:
            value = self.plain(values[parameter.name])
            if parameter.kwarg_only:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        return self.op(*args, **kwargs)

    def array(self, tensor: torch.Tensor, dims: Sequence[Dim] | None = None) -> Array:
        """A result with those dims; without: each padded at its end."""
        if dims is None:
            dims = [(s,) for s in sizes_of(self.fake)]
        return Array(tensor, tuple(dims))

    def only_in(self, a: Array, allowed: Sequence[int]) -> None:
        for d, dim in enumerate(a.dims):
            if symbolic(dim) and d not in allowed:
                raise self.refuse(f"dim {d} varies")

    def one_piece(self, dim: Dim) -> Size:
        """The size of a dim whose padding is all at its end."""
        if len(dim) != 1:
            raise self.refuse(f"a dim of size {size(dim)} is padded in several places")
        return dim[0]

    def broadcast(self, shapes: Sequence[Sequence[Dim]], relaid: bool = False) -> list[Dim]:
        """The dims that arrays of these pair up to.

        `relaid`: the caller brings the arrays into that form, by `as_in`; else they must have it.
        """
        rank = max(map(len, shapes), default=0)
        out: list[Dim] = [(1,)] * rank
        for dims in shapes:
            for d, dim in enumerate(dims, rank - len(dims)):
                if dim == (1,) or out[d] == dim:
                    continue
                if out[d] != (1,) and not (relaid and _same_size(out[d], dim)):
                    raise self.refuse(f"dims of {size(out[d])} and {size(dim)} do not pair up")
                if out[d] == (1,) or len(dim) > len(out[d]):
                    out[d] = dim
        return out

    def as_in(self, a: Array, dims: Sequence[Dim]) -> Array:
        """The array, its last dims padded as these are, where it does not repeat elements."""
        t, mine = a.tensor, list(a.dims)
        for d in range(-1, -min(len(mine), len(dims)) - 1, -1):
            if mine[d] not in ((1,), dims[d]):
                if not _same_size(mine[d], dims[d]):
                    raise self.refuse(f"a dim of {size(mine[d])} where {size(dims[d])} was due")
                t = self.sizes.relaid(t, d + len(mine), mine[d], dims[d])
                mine[d] = dims[d]
        return Array(t, tuple(mine))

    def take(self, x: torch.Tensor, dim: int, at: torch.Tensor) -> torch.Tensor:
        """Elements at those positions, clamped into the dim."""
        return x.index_select(dim, at.clamp(0, x.shape[dim] - 1))

    def repeated(self, a: Array, dims: Sequence[int]) -> torch.Tensor:
        """The tensor with its last real elements in place of the padding."""
        t = a.tensor
        for d in dims:
            if symbolic(a.dims[d]):
                last = self.sizes.value(self.one_piece(a.dims[d])) - 1
                t = t.index_select(d, self.sizes.positions(t.shape[d]).minimum(last))
        return t

    def index(self, a: Array, dim: Dim) -> torch.Tensor:
        """An index into a dim: any padding of its own is 0; counted from the end, and out of
        range, as if the dim had no padding.
        """
        index = self.sizes.filled(a, 0)
        if not symbolic(dim):
            return index
        length = self.sizes.value(self.one_piece(dim)).to(index.dtype)
        index = torch.where(index < 0, index + length, index)
        outside = (index < 0) | (index >= length)
        return index.masked_fill(outside, self.sizes.bound_of(dim))


def _same_size(a: Dim, b: Dim) -> bool:
    return bool(sympy.expand(sympy.sympify(size(a)) - size(b)) == 0)


def dim_of(d: int, rank: int) -> int:
    return d + rank if d < 0 else d


def dims_of(d: Any, rank: int) -> list[int]:
    if d is None or (isinstance(d, (list, tuple)) and not d):
        return list(range(rank))
    return [dim_of(x, rank) for x in (d if isinstance(d, (list, tuple)) else [d])]


def _arrays(a: SimpleNamespace) -> list[Array]:
    found: list[Array] = []
    for x in vars(a).values():
        found += [y for y in (x if isinstance(x, (list, tuple)) else [x]) if isinstance(y, Array)]
    return found


def pointwise(p: Padding, a: SimpleNamespace) -> Any:
    dims = p.broadcast([x.dims for x in _arrays(a)], relaid=True)
    given = SimpleNamespace(
        **{k: p.as_in(v, dims) if isinstance(v, Array) else v for k, v in vars(a).items()}
    )
    values = {k: p.plain(v) for k, v in vars(given).items()}
    if any(isinstance(v, (torch.SymInt, torch.SymFloat)) for v in vars(a).values()):
        # Another overload, that takes a tensor for the number.
        names = {x.name: x for x in p.op._schema.arguments}
        args = [v for k, v in values.items() if not names[k].kwarg_only]
        kwargs = {k: v for k, v in values.items() if names[k].kwarg_only and v is not None}
        if p.kind in (aten.add, aten.sub) and kwargs.get("alpha") == 1:
            del kwargs["alpha"]
        result = p.kind(*args, **kwargs)
    else:
        result = p.call(given)
    if isinstance(result, (tuple, list)):
        return tuple(p.array(r, dims) for r in result)
    if result.dtype != p.fake.dtype:
        raise p.refuse(f"the result would be {result.dtype}, not {p.fake.dtype}")
    return p.array(result, dims)


rule(
    aten._to_copy, aten.clone, aten.detach, aten.alias, aten.lift_fresh_copy, aten.contiguous,
    aten.native_dropout_backward, aten.threshold_backward, aten.where, aten.masked_fill,
    aten.zeros_like, aten.ones_like, aten.full_like, aten.empty_like, aten.tril, aten.triu,
    aten.nan_to_num, aten.lerp, prims.convert_element_type, aten._conj, aten.copy,
)(pointwise)  # fmt: skip


# -- shapes ----------------------------------------------------------------------------------------


@rule(aten.view, aten._unsafe_view, aten.reshape, aten._reshape_alias)
def _view(p: Padding, a: SimpleNamespace) -> Array:
    factors: list[Size] = [f for dim in a.self.dims for f in dim if f != 1]
    dims: list[Dim] = []
    for whole in sizes_of(p.fake):
        left: Any = whole
        mine: list[Size] = []
        while left != 1:
            if not factors:
                raise p.refuse("sizes do not match")
            f = factors.pop(0)
            if isinstance(left, int) and isinstance(f, int):
                part = math.gcd(left, f)
                if part == 1:
                    raise p.refuse(f"{f} elements cannot be taken apart by {left}")
                if part != f:
                    factors.insert(0, f // part)
                f = part
            elif (rest := _quotient(f, left)) is not None and rest != 1:
                # A symbol and the numbers after it are one factor: the symbol's part comes first.
                if not isinstance(rest, int) or not is_symbolic(left):
                    again: Array = _view(p, _taken_apart(p, a, f, left, rest))
                    return again
                factors.insert(0, rest)
                f = left
            quotient = _quotient(left, f)
            if quotient is None:
                raise p.refuse(f"a dim of {whole} cannot be made of {f}")
            mine.append(f)
            left = quotient
        dims.append(joined(mine))
    if any(f != 1 for f in factors):
        raise p.refuse("sizes do not match")
    return p.array(a.self.tensor.reshape(p.sizes.bounds_of(dims)), dims)


def _taken_apart(
    p: Padding, a: SimpleNamespace, factor: Size, first: Size, rest: Size
) -> SimpleNamespace:
    """The arguments of a view with the dim of that factor padded in each of `first` pieces."""
    found = [d for d, dim in enumerate(a.self.dims) if dim == (factor,)]
    if len(found) != 1:
        raise p.refuse(f"a dim of {factor} cannot be taken apart by {first}")
    dims = list(a.self.dims)
    dims[found[0]] = (first, rest)
    return SimpleNamespace(**{**vars(a), "self": p.as_in(a.self, dims)})


def _quotient(a: Any, b: Any) -> Size | None:
    q = sympy.cancel(sympy.sympify(a) / b)
    if q.is_Integer or (not q.is_number and q.as_numer_denom()[1] == 1):
        return size_of(sympy.expand(q))
    return None


@rule(aten.expand)
def _expand(p: Padding, a: SimpleNamespace) -> Array:
    new = sizes_of(p.fake)
    old = [(1,)] * (len(new) - len(a.self.dims)) + list(a.self.dims)
    dims = [(n,) if o == (1,) else o for o, n in zip(old, new, strict=True)]
    return p.array(a.self.tensor.expand(p.sizes.bounds_of(dims)), dims)


@rule(aten.permute)
def _permute(p: Padding, a: SimpleNamespace) -> Array:
    order = dims_of(a.dims, len(a.self.dims))
    return p.array(a.self.tensor.permute(order), [a.self.dims[d] for d in order])


@rule(aten.t, aten.transpose, aten.numpy_T)
def _transpose(p: Padding, a: SimpleNamespace) -> Array:
    order = list(range(len(a.self.dims)))
    if hasattr(a, "dim0"):
        i, j = dims_of([a.dim0, a.dim1], len(order))
        order[i], order[j] = order[j], order[i]
    else:
        order.reverse()
    return p.array(a.self.tensor.permute(order), [a.self.dims[d] for d in order])


@rule(aten.unsqueeze)
def _unsqueeze(p: Padding, a: SimpleNamespace) -> Array:
    d = dim_of(a.dim, len(a.self.dims) + 1)
    return p.array(a.self.tensor.unsqueeze(d), (*a.self.dims[:d], (1,), *a.self.dims[d:]))


@rule(aten.squeeze)
def _squeeze(p: Padding, a: SimpleNamespace) -> Array:
    asked = dims_of(getattr(a, "dim", None), len(a.self.dims))
    gone = [d for d in asked if a.self.dims[d] == (1,)]
    kept = [d for d in range(len(a.self.dims)) if d not in gone]
    tensor = a.self.tensor.reshape([a.self.tensor.shape[d] for d in kept])
    return p.array(tensor, [a.self.dims[d] for d in kept])


def _start(p: Padding, start: Any, dim: Dim) -> int | torch.Tensor:
    """A position in a dim: a number where it does not depend on the sizes."""
    start = 0 if start is None else size_of(start)
    if isinstance(start, int) and start >= 0:
        return start
    if isinstance(start, int) and not symbolic(dim):
        return max(start + int(size(dim)), 0)
    at = p.sizes.value(start)
    length = p.sizes.value(p.one_piece(dim))
    return torch.where(at < 0, at + length, at).clamp_min(0)


@rule(aten.select)
def _select(p: Padding, a: SimpleNamespace) -> Array:
    d = dim_of(a.dim, len(a.self.dims))
    at = _start(p, a.index, a.self.dims[d])
    if isinstance(at, int):
        tensor = a.self.tensor.select(d, at)
    else:
        tensor = p.take(a.self.tensor, d, at.reshape(1)).squeeze(d)
    return p.array(tensor, a.self.dims[:d] + a.self.dims[d + 1 :])


def _sliced(
    p: Padding, x: Array, d: int, start: int | torch.Tensor, step: int, length: Size
) -> Array:
    """`length` elements of a dim from `start` on."""
    n, whole = p.sizes.bound(length), x.tensor.shape[d]
    dims = (*x.dims[:d], (length,), *x.dims[d + 1 :])
    if isinstance(start, int) and start + (n - 1) * step < whole:
        end = start + (n - 1) * step + 1
        return Array(aten.slice.Tensor(x.tensor, d, start, end, step), dims)
    return Array(p.take(x.tensor, d, start + step * p.sizes.positions(n)), dims)


@rule(aten.slice)
def _slice(p: Padding, a: SimpleNamespace) -> Array:
    d = dim_of(a.dim, len(a.self.dims))
    length = sizes_of(p.fake)[d]
    if size(a.self.dims[d]) == length and a.step == 1:
        return p.array(a.self.tensor, a.self.dims)
    p.one_piece(a.self.dims[d])
    return _sliced(p, a.self, d, _start(p, a.start, a.self.dims[d]), int(a.step), length)


@rule(aten.split, aten.split_with_sizes, aten.unbind)
def _split(p: Padding, a: SimpleNamespace) -> tuple[Array, ...]:
    d = dim_of(a.dim, len(a.self.dims))
    if not symbolic(a.self.dims[d]):
        gone = p.kind is aten.unbind
        pieces = p.call(a)
        return tuple(
            Array(t, (*a.self.dims[:d], *(() if gone else ((t.shape[d],),)), *a.self.dims[d + 1 :]))
            for t in pieces
        )
    p.one_piece(a.self.dims[d])
    begin: Any = 0
    found = []
    for fake in p.fake:
        length = sizes_of(fake)[d]
        begin = size_of(begin)
        at = begin if isinstance(begin, int) else p.sizes.value(begin)
        found.append(_sliced(p, a.self, d, at, 1, length))
        begin = sympy.expand(begin + length)
    return tuple(found)


def _placed(
    p: Padding, base: torch.Tensor, x: Array, d: int, start: int | torch.Tensor
) -> torch.Tensor:
    """`base` with the real elements of x from `start` on in a dim; the others' sizes are equal."""
    at = p.sizes.positions(base.shape[d]) - start
    inside = (at >= 0) & (at < p.sizes.value(p.one_piece(x.dims[d])))
    shape = [-1 if i == d else 1 for i in range(base.dim())]
    return torch.where(inside.reshape(shape), p.take(x.tensor, d, at), base)


@rule(aten.cat)
def _cat(p: Padding, a: SimpleNamespace) -> Array:
    parts = [x for x in a.tensors if x.dims != ((0,),)]
    d = dim_of(a.dim, len(parts[0].dims))
    rest = p.broadcast([(*x.dims[:d], (1,), *x.dims[d + 1 :]) for x in parts])
    if not any(symbolic(x.dims[d]) for x in parts):
        whole = sum(x.tensor.shape[d] for x in parts)
        dims = (*rest[:d], (whole,), *rest[d + 1 :])
        return p.array(torch.cat([x.tensor for x in parts], d), dims)
    dims = (*rest[:d], (sizes_of(p.fake)[d],), *rest[d + 1 :])
    dtype = p.fake.dtype
    length = p.sizes.bound_of(dims[d])
    tensor = p.take(parts[0].tensor.to(dtype), d, p.sizes.positions(length))
    begin: Any = p.one_piece(parts[0].dims[d])
    for x in parts[1:]:
        tensor = _placed(p, tensor, Array(x.tensor.to(dtype), x.dims), d, p.sizes.value(begin))
        begin = sympy.expand(begin + p.one_piece(x.dims[d]))
    return p.array(tensor, dims)


@rule(aten.stack)
def _stack(p: Padding, a: SimpleNamespace) -> Array:
    dims = p.broadcast([x.dims for x in a.tensors])
    d = dim_of(a.dim, len(dims) + 1)
    tensor = torch.stack([x.tensor for x in a.tensors], d)
    return p.array(tensor, (*dims[:d], (len(a.tensors),), *dims[d:]))


@rule(aten.constant_pad_nd)
def _pad(p: Padding, a: SimpleNamespace) -> Array:
    x, rank = a.self, len(a.self.dims)
    for i in range(len(a.pad) // 2):
        d = rank - 1 - i
        before, after = size_of(a.pad[2 * i]), size_of(a.pad[2 * i + 1])
        if before == 0 and after == 0:
            continue
        if not isinstance(before, int):
            raise p.refuse("what stands in front varies")
        length = sizes_of(p.fake)[d]
        dims = (*x.dims[:d], (length,), *x.dims[d + 1 :])
        shape = list(x.tensor.shape)
        shape[d] = p.sizes.bound(length)
        base = x.tensor.new_full(shape, a.value)
        x = Array(_placed(p, base, x, d, before), dims)
    return p.array(x.tensor, x.dims)


@rule(aten.flip)
def _flip(p: Padding, a: SimpleNamespace) -> Array:
    t = a.self.tensor
    for d in dims_of(a.dims, len(a.self.dims)):
        last = p.sizes.value(p.one_piece(a.self.dims[d])) - 1
        t = p.take(t, d, last - p.sizes.positions(t.shape[d]))
    return p.array(t, a.self.dims)


@rule(aten.repeat)
def _repeat(p: Padding, a: SimpleNamespace) -> Array:
    if not all(isinstance(n, int) for n in a.repeats):
        raise p.refuse("the number of times varies")
    old = [(1,)] * (len(a.repeats) - len(a.self.dims)) + list(a.self.dims)
    dims = [joined((n, *dim)) for n, dim in zip(a.repeats, old, strict=True)]
    return p.array(p.call(a), dims)


@rule(aten.slice_backward)
def _slice_backward(p: Padding, a: SimpleNamespace) -> Array:
    if a.step != 1:
        raise p.refuse(f"a step of {a.step}")
    dims = [(s,) for s in sizes_of(p.fake)]
    d = dim_of(a.dim, len(dims))
    base = a.grad_output.tensor.new_zeros(p.sizes.bounds_of(dims))
    return p.array(_placed(p, base, a.grad_output, d, _start(p, a.start, dims[d])), dims)


@rule(aten.select_backward)
def _select_backward(p: Padding, a: SimpleNamespace) -> Array:
    dims = [(s,) for s in sizes_of(p.fake)]
    d = dim_of(a.dim, len(dims))
    base = a.grad_output.tensor.new_zeros(p.sizes.bounds_of(dims))
    x = _unsqueeze(p, SimpleNamespace(self=a.grad_output, dim=d))
    return p.array(_placed(p, base, x, d, _start(p, a.index, dims[d])), dims)


@rule(aten.slice_scatter)
def _slice_scatter(p: Padding, a: SimpleNamespace) -> Array:
    if a.step != 1:
        raise p.refuse(f"a step of {a.step}")
    d = dim_of(a.dim, len(a.self.dims))
    start = _start(p, a.start, a.self.dims[d])
    return p.array(_placed(p, a.self.tensor, a.src, d, start), a.self.dims)


@rule(aten.select_scatter)
def _select_scatter(p: Padding, a: SimpleNamespace) -> Array:
    d = dim_of(a.dim, len(a.self.dims))
    x = _unsqueeze(p, SimpleNamespace(self=a.src, dim=d))
    start = _start(p, a.index, a.self.dims[d])
    return p.array(_placed(p, a.self.tensor, x, d, start), a.self.dims)


# -- new tensors -----------------------------------------------------------------------------------


@rule(
    aten.zeros, aten.ones, aten.empty, aten.full, aten.new_zeros, aten.new_ones, aten.new_empty,
    aten.new_full, aten.empty_strided, aten.new_empty_strided, aten.empty_permuted,
    aten.scalar_tensor,
)  # fmt: skip
def _filled(p: Padding, a: SimpleNamespace) -> Array:
    name = p.kind.__name__
    fill = getattr(a, "fill_value", getattr(a, "s", 1 if "ones" in name else 0))
    shape = [p.sizes.bound(s) for s in sizes_of(p.fake)]
    kind = {"dtype": p.fake.dtype, "device": p.sizes.device}
    if isinstance(fill, (torch.SymInt, torch.SymFloat)):
        return p.array(p.sizes.value(fill).to(p.fake.dtype).expand(shape))
    return p.array(torch.full(shape, fill, **kind))


@rule(aten.arange, prims.iota)
def _arange(p: Padding, a: SimpleNamespace) -> Array:
    start, step = getattr(a, "start", 0), getattr(a, "step", 1)
    at = p.sizes.positions(p.sizes.bound(sizes_of(p.fake)[0]))
    if not (start == 0 and step == 1) or not isinstance(start, int):
        at = p.plain(start) + at * p.plain(step)
    return p.array(at.to(p.fake.dtype))


# -- the run of a graph ----------------------------------------------------------------------------


def apply(sizes: Sizes, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The op of a node on Arrays; sizes among the arguments are those of the fake tensors."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        raise NotPaddable(f"nothing is known of {target}")
    run = RULES.get(target.overloadpacket)
    if run is None:
        if torch.Tag.pointwise not in target.tags:
            raise NotPaddable(f"{target} has no rule")
        run = pointwise
    if torch.Tag.nondeterministic_seeded in target.tags and run is pointwise:
        raise NotPaddable(f"{target} draws as many numbers as there are elements")
    if target._schema.is_mutable:
        raise NotPaddable(f"{target} writes")
    names = [x.name for x in target._schema.arguments]
    a = SimpleNamespace(**{x.name: x.default_value for x in target._schema.arguments})
    vars(a).update(zip(names, args, strict=False))
    vars(a).update(kwargs)
    p = Padding(sizes, node)
    result = run(p, a)
    _verify(p, result, node.meta["val"])
    return result


def _verify(p: Padding, result: Any, fake: Any) -> None:
    """The result has the fake tensor's dtype and sizes, padded as its dims say."""
    if isinstance(result, Array):
        for dim, want in zip(result.dims, sizes_of(fake), strict=True):
            if not _same_size(dim, (want,)):
                raise p.refuse(f"a dim of {size(dim)} where {want} was due")
        if result.tensor.dtype != fake.dtype:
            raise p.refuse(f"{result.tensor.dtype} where {fake.dtype} was due")
        if list(result.tensor.shape) != p.sizes.bounds_of(result.dims):
            raise p.refuse(f"{list(result.tensor.shape)} elements for {result.dims}")
    elif isinstance(result, tuple):
        for r, f in zip(result, fake, strict=True):
            _verify(p, r, f)
