"""How ops run on padded arrays (torch_tpu/_padding.py): a rule for each kind of op.

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


def _rule(*ops: Any) -> Callable[[Rule], Rule]:
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


def _dim(d: int, rank: int) -> int:
    return d + rank if d < 0 else d


def _dims(d: Any, rank: int) -> list[int]:
    if d is None or (isinstance(d, (list, tuple)) and not d):
        return list(range(rank))
    return [_dim(x, rank) for x in (d if isinstance(d, (list, tuple)) else [d])]


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


_rule(
    aten._to_copy, aten.clone, aten.detach, aten.alias, aten.lift_fresh_copy, aten.contiguous,
    aten.native_dropout_backward, aten.threshold_backward, aten.where, aten.masked_fill,
    aten.zeros_like, aten.ones_like, aten.full_like, aten.empty_like, aten.tril, aten.triu,
    aten.nan_to_num, aten.lerp, prims.convert_element_type, aten._conj, aten.copy,
)(pointwise)  # fmt: skip


# -- shapes ----------------------------------------------------------------------------------------


@_rule(aten.view, aten._unsafe_view, aten.reshape, aten._reshape_alias)
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


@_rule(aten.expand)
def _expand(p: Padding, a: SimpleNamespace) -> Array:
    new = sizes_of(p.fake)
    old = [(1,)] * (len(new) - len(a.self.dims)) + list(a.self.dims)
    dims = [(n,) if o == (1,) else o for o, n in zip(old, new, strict=True)]
    return p.array(a.self.tensor.expand(p.sizes.bounds_of(dims)), dims)


@_rule(aten.permute)
def _permute(p: Padding, a: SimpleNamespace) -> Array:
    order = _dims(a.dims, len(a.self.dims))
    return p.array(a.self.tensor.permute(order), [a.self.dims[d] for d in order])


@_rule(aten.t, aten.transpose, aten.numpy_T)
def _transpose(p: Padding, a: SimpleNamespace) -> Array:
    order = list(range(len(a.self.dims)))
    if hasattr(a, "dim0"):
        i, j = _dims([a.dim0, a.dim1], len(order))
        order[i], order[j] = order[j], order[i]
    else:
        order.reverse()
    return p.array(a.self.tensor.permute(order), [a.self.dims[d] for d in order])


@_rule(aten.unsqueeze)
def _unsqueeze(p: Padding, a: SimpleNamespace) -> Array:
    d = _dim(a.dim, len(a.self.dims) + 1)
    return p.array(a.self.tensor.unsqueeze(d), (*a.self.dims[:d], (1,), *a.self.dims[d:]))


@_rule(aten.squeeze)
def _squeeze(p: Padding, a: SimpleNamespace) -> Array:
    asked = _dims(getattr(a, "dim", None), len(a.self.dims))
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


@_rule(aten.select)
def _select(p: Padding, a: SimpleNamespace) -> Array:
    d = _dim(a.dim, len(a.self.dims))
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
        return Array(
            x.tensor.narrow(d, start, (n - 1) * step + 1)[
                (slice(None),) * d + (slice(None, None, step),)
            ],
            dims,
        )
    return Array(p.take(x.tensor, d, start + step * p.sizes.positions(n)), dims)


@_rule(aten.slice)
def _slice(p: Padding, a: SimpleNamespace) -> Array:
    d = _dim(a.dim, len(a.self.dims))
    length = sizes_of(p.fake)[d]
    if size(a.self.dims[d]) == length and a.step == 1:
        return p.array(a.self.tensor, a.self.dims)
    p.one_piece(a.self.dims[d])
    return _sliced(p, a.self, d, _start(p, a.start, a.self.dims[d]), int(a.step), length)


@_rule(aten.split, aten.split_with_sizes, aten.unbind)
def _split(p: Padding, a: SimpleNamespace) -> tuple[Array, ...]:
    d = _dim(a.dim, len(a.self.dims))
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


@_rule(aten.cat)
def _cat(p: Padding, a: SimpleNamespace) -> Array:
    parts = [x for x in a.tensors if x.dims != ((0,),)]
    d = _dim(a.dim, len(parts[0].dims))
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


@_rule(aten.stack)
def _stack(p: Padding, a: SimpleNamespace) -> Array:
    dims = p.broadcast([x.dims for x in a.tensors])
    d = _dim(a.dim, len(dims) + 1)
    tensor = torch.stack([x.tensor for x in a.tensors], d)
    return p.array(tensor, (*dims[:d], (len(a.tensors),), *dims[d:]))


@_rule(aten.constant_pad_nd)
def _pad(p: Padding, a: SimpleNamespace) -> Array:
    x, rank = a.self, len(a.self.dims)
    for i in range(len(a.pad) // 2):
        d = rank - 1 - i
        before, after = size_of(a.pad[2 * i]), size_of(a.pad[2 * i + 1])
        if before == 0 and after == 0:
            continue
        length = sizes_of(p.fake)[d]
        dims = (*x.dims[:d], (length,), *x.dims[d + 1 :])
        shape = list(x.tensor.shape)
        shape[d] = p.sizes.bound(length)
        base = x.tensor.new_full(shape, a.value)
        x = Array(
            _placed(
                p, base, x, d, _start(p, before, ((0,),)) if not isinstance(before, int) else before
            ),
            dims,
        )
    return p.array(x.tensor, x.dims)


@_rule(aten.flip)
def _flip(p: Padding, a: SimpleNamespace) -> Array:
    t = a.self.tensor
    for d in _dims(a.dims, len(a.self.dims)):
        last = p.sizes.value(p.one_piece(a.self.dims[d])) - 1
        t = p.take(t, d, last - p.sizes.positions(t.shape[d]))
    return p.array(t, a.self.dims)


@_rule(aten.repeat)
def _repeat(p: Padding, a: SimpleNamespace) -> Array:
    if not all(isinstance(n, int) for n in a.repeats):
        raise p.refuse("the number of times varies")
    old = [(1,)] * (len(a.repeats) - len(a.self.dims)) + list(a.self.dims)
    dims = [joined((n, *dim)) for n, dim in zip(a.repeats, old, strict=True)]
    return p.array(p.call(a), dims)


@_rule(aten.slice_backward)
def _slice_backward(p: Padding, a: SimpleNamespace) -> Array:
    if a.step != 1:
        raise p.refuse(f"a step of {a.step}")
    dims = [(s,) for s in sizes_of(p.fake)]
    d = _dim(a.dim, len(dims))
    base = a.grad_output.tensor.new_zeros(p.sizes.bounds_of(dims))
    return p.array(_placed(p, base, a.grad_output, d, _start(p, a.start, dims[d])), dims)


@_rule(aten.select_backward)
def _select_backward(p: Padding, a: SimpleNamespace) -> Array:
    dims = [(s,) for s in sizes_of(p.fake)]
    d = _dim(a.dim, len(dims))
    base = a.grad_output.tensor.new_zeros(p.sizes.bounds_of(dims))
    x = _unsqueeze(p, SimpleNamespace(self=a.grad_output, dim=d))
    return p.array(_placed(p, base, x, d, _start(p, a.index, dims[d])), dims)


@_rule(aten.slice_scatter)
def _slice_scatter(p: Padding, a: SimpleNamespace) -> Array:
    if a.step != 1:
        raise p.refuse(f"a step of {a.step}")
    d = _dim(a.dim, len(a.self.dims))
    start = _start(p, a.start, a.self.dims[d])
    return p.array(_placed(p, a.self.tensor, a.src, d, start), a.self.dims)


@_rule(aten.select_scatter)
def _select_scatter(p: Padding, a: SimpleNamespace) -> Array:
    d = _dim(a.dim, len(a.self.dims))
    x = _unsqueeze(p, SimpleNamespace(self=a.src, dim=d))
    start = _start(p, a.index, a.self.dims[d])
    return p.array(_placed(p, a.self.tensor, x, d, start), a.self.dims)


# -- new tensors -----------------------------------------------------------------------------------


@_rule(
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


@_rule(aten.arange, prims.iota)
def _arange(p: Padding, a: SimpleNamespace) -> Array:
    start, step = getattr(a, "start", 0), getattr(a, "step", 1)
    at = p.sizes.positions(p.sizes.bound(sizes_of(p.fake)[0]))
    if not (start == 0 and step == 1) or not isinstance(start, int):
        at = p.plain(start) + at * p.plain(step)
    return p.array(at.to(p.fake.dtype))


# -- reductions ------------------------------------------------------------------------------------


def _reduced(a: Array, dims: Sequence[int], keep: bool) -> list[Dim]:
    if keep:
        return [(1,) if d in dims else x for d, x in enumerate(a.dims)]
    return [x for d, x in enumerate(a.dims) if d not in dims]


def _lowest(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point:
        return -math.inf
    return False if dtype is torch.bool else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point:
        return math.inf
    return True if dtype is torch.bool else torch.iinfo(dtype).max


_FILL: dict[Any, Callable[[torch.dtype], Any]] = {
    aten.sum: lambda _: 0, aten.nansum: lambda _: 0, aten.prod: lambda _: 1,
    aten.any: lambda _: 0, aten.all: lambda _: 1, aten.count_nonzero: lambda _: 0,
    aten.amax: _lowest, aten.max: _lowest, aten.argmax: _lowest, aten.logsumexp: _lowest,
    aten.amin: _highest, aten.min: _highest, aten.argmin: _highest,
}  # fmt: skip


@_rule(*_FILL)
def _reduce(p: Padding, a: SimpleNamespace) -> Any:
    rank = len(a.self.dims)
    dims = _dims(getattr(a, "dim", None), rank)
    if (
        p.kind in (aten.argmax, aten.argmin)
        and a.dim is None
        and any(map(symbolic, a.self.dims[1:]))
    ):
        raise p.refuse("an index into padded dims")
    if hasattr(a, "other"):
        return pointwise(p, a)
    x = p.sizes.filled(a.self, _FILL[p.kind](a.self.tensor.dtype), dims)
    out = _reduced(a.self, dims, getattr(a, "keepdim", False))
    result = p.call(a, self=x)
    if isinstance(result, torch.Tensor):
        return p.array(result, out)
    return tuple(p.array(r, out) for r in result)


def _count(p: Padding, x: Array, dims: Sequence[int]) -> torch.Tensor:
    n = sympy.Integer(1)
    for d in dims:
        n = n * size(x.dims[d])
    return p.sizes.value(sympy.expand(n))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


@_rule(aten.mean)
def _mean(p: Padding, a: SimpleNamespace) -> Array:
    dims = _dims(getattr(a, "dim", None), len(a.self.dims))
    keep = getattr(a, "keepdim", False)
    x = p.sizes.filled(a.self, 0, dims)
    total = x.sum(dims, keepdim=keep, dtype=_wide(p.fake.dtype))
    mean = total / _count(p, a.self, dims).to(total.dtype)
    return p.array(mean.to(p.fake.dtype), _reduced(a.self, dims, keep))


@_rule(aten.var, aten.std, aten.var_mean, aten.std_mean)
def _var(p: Padding, a: SimpleNamespace) -> Any:
    dims = _dims(a.dim, len(a.self.dims))
    if a.self.tensor.is_complex():
        raise p.refuse("of complex numbers")
    count = _count(p, a.self, dims)
    correction = getattr(a, "correction", 1)
    correction = 1 if correction is None else correction
    wide = _wide(a.self.tensor.dtype)
    count = count.to(wide)
    x = p.sizes.filled(a.self, 0, dims).to(wide)
    mean = x.sum(dims, keepdim=True) / count
    d = p.sizes.filled(Array(x - mean, a.self.dims), 0, dims)
    result = (d * d).sum(dims, keepdim=True) / (count - correction).clamp_min(0)
    if p.kind in (aten.std, aten.std_mean):
        result = result.sqrt()
    out = _reduced(a.self, dims, a.keepdim)
    shape = p.sizes.bounds_of(out)
    arrays = [p.array(t.to(a.self.tensor.dtype).reshape(shape), out) for t in (result, mean)]
    return tuple(arrays) if p.kind in (aten.var_mean, aten.std_mean) else arrays[0]


@_rule(aten.linalg_vector_norm)
def _norm(p: Padding, a: SimpleNamespace) -> Array:
    dims = _dims(a.dim, len(a.self.dims))
    fill = math.inf if a.ord < 0 else 0
    x = p.sizes.filled(a.self, fill, dims)
    return p.array(p.call(a, self=x), _reduced(a.self, dims, a.keepdim))


@_rule(aten.cumsum, aten.cumprod, aten.logcumsumexp, aten.cummax, aten.cummin)
def _scan(p: Padding, a: SimpleNamespace) -> Any:
    d = _dim(a.dim, max(len(a.self.dims), 1))
    if a.self.dims:
        p.one_piece(a.self.dims[d])
    result = p.call(a, self=p.sizes.filled(a.self, 0, [d] if a.self.dims else []))
    if isinstance(result, torch.Tensor):
        return p.array(result, a.self.dims)
    return tuple(p.array(r, a.self.dims) for r in result)


@_rule(aten._softmax, aten._log_softmax, aten._safe_softmax)
def _softmax(p: Padding, a: SimpleNamespace) -> Array:
    d = _dim(a.dim, len(a.self.dims))
    return p.array(p.call(a, self=p.sizes.filled(a.self, -math.inf, [d])), a.self.dims)


@_rule(aten._softmax_backward_data, aten._log_softmax_backward_data)
def _softmax_backward(p: Padding, a: SimpleNamespace) -> Array:
    d = _dim(a.dim, len(a.output.dims))
    fill = 0 if p.kind is aten._softmax_backward_data else -math.inf
    grad = p.sizes.filled(p.as_in(a.grad_output, a.output.dims), 0, [d])
    output = p.sizes.filled(a.output, fill, [d])
    return p.array(p.call(a, grad_output=grad, output=output), a.output.dims)


@_rule(aten.sort, aten.argsort, aten.topk, aten.msort)
def _sort(p: Padding, a: SimpleNamespace) -> Any:
    d = _dim(getattr(a, "dim", -1), len(a.self.dims))
    p.one_piece(a.self.dims[d])
    dtype = a.self.tensor.dtype
    down = getattr(a, "descending", getattr(a, "largest", False))
    # Last of all, after the real NaNs; ties are in the order of their positions.
    last = math.nan if dtype.is_floating_point else _highest(dtype)
    changed: dict[str, Any] = {
        "self": p.sizes.filled(a.self, _lowest(dtype) if down else last, [d])
    }
    if hasattr(a, "stable"):
        changed["stable"] = True
    elif symbolic(a.self.dims[d]) and p.op is aten.sort.default:
        values, indices = torch.sort(changed["self"], dim=d, descending=down, stable=True)
        return (p.array(values, a.self.dims), p.array(indices, a.self.dims))
    result = p.call(a, **changed)
    dims = list(a.self.dims)
    if hasattr(a, "k"):
        if not isinstance(a.k, int):
            raise p.refuse("k varies")
        dims[d] = (a.k,)
    if isinstance(result, torch.Tensor):
        return p.array(result, dims)
    return tuple(p.array(r, dims) for r in result)


# -- products --------------------------------------------------------------------------------------


def _product(p: Padding, x: Array, y: Array) -> tuple[torch.Tensor, torch.Tensor, list[Dim]]:
    """The operands of x @ y without padding where they are summed, and the dims of the product."""
    (inner,) = p.broadcast([x.dims[-1:], y.dims[-2:-1]], relaid=True)
    batch = p.broadcast([x.dims[:-2], y.dims[:-2]], relaid=True)
    x = p.as_in(x, [*batch, x.dims[-2], inner])
    y = p.as_in(y, [*batch, inner, y.dims[-1]])
    rank = len(x.dims)
    return (
        p.sizes.filled(x, 0, [rank - 1]),
        p.sizes.filled(y, 0, [rank - 2]),
        [*batch, x.dims[-2], y.dims[-1]],
    )


@_rule(aten.mm, aten.bmm)
def _mm(p: Padding, a: SimpleNamespace) -> Array:
    x, y, dims = _product(p, a.self, a.mat2)
    return p.array(p.call(a, self=x, mat2=y), dims)


@_rule(aten.addmm, aten.baddbmm)
def _addmm(p: Padding, a: SimpleNamespace) -> Array:
    batched = hasattr(a, "batch1")
    names = ("batch1", "batch2") if batched else ("mat1", "mat2")
    x, y, dims = _product(p, getattr(a, names[0]), getattr(a, names[1]))
    changed = dict(zip(names, (x, y), strict=True))
    return p.array(p.call(a, self=p.as_in(a.self, dims).tensor, **changed), dims)


@_rule(aten.mv, aten.dot)
def _mv(p: Padding, a: SimpleNamespace) -> Array:
    other = a.vec if hasattr(a, "vec") else a.tensor
    (inner,) = p.broadcast([a.self.dims[-1:], other.dims], relaid=True)
    x = p.sizes.filled(p.as_in(a.self, [inner]), 0, [len(a.self.dims) - 1])
    y = p.sizes.filled(p.as_in(other, [inner]), 0)
    changed = {"self": x, ("vec" if hasattr(a, "vec") else "tensor"): y}
    return p.array(p.call(a, **changed), a.self.dims[:-1])


_ATTENTION = "_scaled_dot_product_fused_attention_overrideable"


def _attention_operands(p: Padding, a: SimpleNamespace) -> tuple[dict[str, Any], Any]:
    """Arguments without padding, and the factor of the query, if its last dim varies."""
    if a.dropout_p:
        raise p.refuse("dropout draws as many numbers as there are scores")
    key, bias = a.key.dims[-2], a.attn_bias
    rows = [a.query.dims[:1], a.key.dims[:1], a.value.dims[:1]]
    p.broadcast([*rows, *([bias.dims[:-3]] if bias is not None else [])])
    p.broadcast(
        [a.key.dims[-2:-1], a.value.dims[-2:-1], *([bias.dims[-1:]] if bias is not None else [])]
    )
    p.broadcast([a.query.dims[-1:], a.key.dims[-1:]])
    if bias is not None:
        p.broadcast([a.query.dims[-2:-1], bias.dims[-2:-1]])
    for x in (a.grad_out, a.out) if hasattr(a, "out") else ():
        p.broadcast([x.dims, [*a.query.dims[:-1], a.value.dims[-1]]])
    if a.is_causal and a.query.dims[-2] != key:
        raise p.refuse("causal, with queries and keys of different lengths")
    # A causal query reads nothing after its own position, so no padding either.
    if symbolic(key) and not a.is_causal:
        mask = p.sizes.real(key)
        if bias is None:
            bias = mask.expand(a.query.tensor.shape[-2], -1)
        elif bias.tensor.dtype is torch.bool:
            bias = bias.tensor & mask
        else:
            bias = bias.tensor.masked_fill(~mask, -math.inf)
    names = ("grad_out", "query", "key", "value", "out", "logsumexp")
    clean: dict[str, Any] = {n: p.sizes.filled(getattr(a, n), 0) for n in names if hasattr(a, n)}
    clean["attn_bias"] = bias
    width = a.query.dims[-1]
    if not symbolic(width):
        return clean, None
    scale = (
        p.sizes.value(size(width)).to(clean["query"].dtype).rsqrt() if a.scale is None else a.scale
    )
    clean |= {"query": clean["query"] * scale, "scale": 1.0}
    return clean, scale


@_rule(getattr(aten, _ATTENTION))
def _attention(p: Padding, a: SimpleNamespace) -> tuple[Any, ...]:
    clean, _ = _attention_operands(p, a)
    r = p.call(a, **clean)
    dims = a.query.dims[:-1]  # keys may have fewer heads
    seeds = [t if t is None else p.array(t, [(int(n),) for n in t.shape]) for t in r[6:]]
    # The lengths are sizes, and are those of the fake tensors.
    return (
        p.array(r[0], [*dims, a.value.dims[-1]]),
        p.array(r[1], dims),
        *r[2:4],
        *p.fake[4:6],
        *seeds,
    )


@_rule(getattr(aten, _ATTENTION + "_backward"))
def _attention_backward(p: Padding, a: SimpleNamespace) -> tuple[Any, ...]:
    if a.attn_bias is not None and a.grad_input_mask[3]:
        raise p.refuse("a bias with a gradient")
    clean, scale = _attention_operands(p, a)
    # They count for nothing where the padding is zero.
    lengths = {"max_q": a.query.tensor.shape[-2], "max_k": a.key.tensor.shape[-2]}
    dq, dk, dv, _ = p.call(a, **clean, **lengths)
    if scale is not None:
        dq = dq * scale
    return (p.array(dq, a.query.dims), p.array(dk, a.key.dims), p.array(dv, a.value.dims), None)


# -- indices ---------------------------------------------------------------------------------------


@_rule(aten.embedding)
def _embedding(p: Padding, a: SimpleNamespace) -> Array:
    index = p.index(a.indices, a.weight.dims[0])
    return p.array(p.call(a, indices=index), [*a.indices.dims, a.weight.dims[1]])


@_rule(aten.embedding_dense_backward)
def _embedding_backward(p: Padding, a: SimpleNamespace) -> Array:
    if not isinstance(a.num_weights, int):
        raise p.refuse("the number of rows varies")
    rank = len(a.indices.dims)
    grad_output = p.as_in(a.grad_output, [*a.indices.dims, a.grad_output.dims[-1]])
    grad = p.sizes.filled(grad_output, 0, range(rank))
    index = p.sizes.filled(a.indices, 0)
    return p.array(
        p.call(a, grad_output=grad, indices=index), [(a.num_weights,), a.grad_output.dims[-1]]
    )


@_rule(aten.index_select)
def _index_select(p: Padding, a: SimpleNamespace) -> Array:
    d = _dim(a.dim, len(a.self.dims))
    index = p.index(a.index, a.self.dims[d])
    return p.array(p.call(a, index=index), [*a.self.dims[:d], *a.index.dims, *a.self.dims[d + 1 :]])


@_rule(aten.gather)
def _gather(p: Padding, a: SimpleNamespace) -> Array:
    d = _dim(a.dim, len(a.self.dims))
    _same_or_static(p, a.self, a.index, d)
    return p.array(p.call(a, index=p.index(a.index, a.self.dims[d])), a.index.dims)


def _same_or_static(p: Padding, x: Array, index: Array, but: int) -> None:
    for d, (mine, its) in enumerate(zip(x.dims, index.dims, strict=True)):
        if d != but and mine != its and (symbolic(mine) or symbolic(its)):
            raise p.refuse(f"dims of {size(mine)} and {size(its)} do not pair up")


def _indexed(p: Padding, x: Array, indices: Sequence[Any]) -> tuple[list[Dim], list[Dim], int]:
    """For x[indices]: the dims of the index, those of the result, and where the first begin."""
    given = [d for d, i in enumerate(indices) if i is not None]
    if any(indices[d].tensor.dtype in (torch.bool, torch.uint8) for d in given):
        raise p.refuse("a mask as an index")
    index = p.broadcast([indices[d].dims for d in given])
    rest = [dim for d, dim in enumerate(x.dims) if d not in given]
    together = given == list(range(given[0], given[-1] + 1))
    at = given[0] if together else 0
    return index, [*rest[:at], *index, *rest[at:]], at


@_rule(aten.index, aten._unsafe_index)
def _index(p: Padding, a: SimpleNamespace) -> Array:
    _, dims, _ = _indexed(p, a.self, a.indices)
    indices = [None if i is None else p.index(i, a.self.dims[d]) for d, i in enumerate(a.indices)]
    return p.array(p.call(a, indices=indices), dims)


@_rule(aten.index_put, aten._unsafe_index_put)
def _index_put(p: Padding, a: SimpleNamespace) -> Array:
    index, dims, at = _indexed(p, a.self, a.indices)
    p.broadcast([a.values.dims, dims])
    indices: list[torch.Tensor | None] = []
    for d, i in enumerate(a.indices):
        if i is None:
            indices.append(None)
            continue
        found = p.index(i, a.self.dims[d])
        indices.append(
            found if a.accumulate else p.repeated(Array(found, i.dims), range(len(i.dims)))
        )
    shape = p.sizes.bounds_of(dims)
    places = range(at, at + len(index))
    values = Array(a.values.tensor.expand(shape), tuple(dims))
    # What pads the index writes once more what its last element writes, or adds nothing.
    new = p.sizes.filled(values, 0, places) if a.accumulate else p.repeated(values, places)
    return p.array(p.call(a, indices=indices, values=new), a.self.dims)


@_rule(aten.index_add, aten.index_copy)
def _index_add(p: Padding, a: SimpleNamespace) -> Array:
    d = _dim(a.dim, len(a.self.dims))
    source = a.source
    p.broadcast(
        [
            (*a.self.dims[:d], (1,), *a.self.dims[d + 1 :]),
            (*source.dims[:d], (1,), *source.dims[d + 1 :]),
        ]
    )
    index = p.index(a.index, a.self.dims[d])
    if p.kind is aten.index_add:
        return p.array(p.call(a, index=index, source=p.sizes.filled(source, 0, [d])), a.self.dims)
    index = p.repeated(Array(index, a.index.dims), [0])
    return p.array(p.call(a, index=index, source=p.repeated(source, [d])), a.self.dims)


@_rule(aten.scatter, aten.scatter_add)
def _scatter(p: Padding, a: SimpleNamespace) -> Array:
    d = _dim(a.dim, len(a.self.dims))
    _same_or_static(p, a.self, a.index, d)
    index = p.index(a.index, a.self.dims[d])
    src = getattr(a, "src", None)
    if hasattr(a, "reduce"):
        raise p.refuse("with a reduction")
    if src is not None and src.dims != a.index.dims:
        raise p.refuse("a source of other sizes than the index")
    if p.kind is aten.scatter_add:
        return p.array(p.call(a, index=index, src=p.sizes.filled(a.src, 0)), a.self.dims)
    changed = {"index": p.repeated(Array(index, a.index.dims), [d])}
    if src is not None:
        changed["src"] = p.repeated(src, [d])
    return p.array(p.call(a, **changed), a.self.dims)


# -- layers ----------------------------------------------------------------------------------------


@_rule(
    aten.nll_loss_forward, aten.nll_loss_backward, aten.nll_loss2d_forward, aten.nll_loss2d_backward
)
def _nll_loss(p: Padding, a: SimpleNamespace) -> Any:
    classes = 1 if len(a.self.dims) > 1 else 0
    p.only_in(a.self, [d for d in range(len(a.self.dims)) if d != classes])
    samples = [dim for d, dim in enumerate(a.self.dims) if d != classes]
    changed = {
        "self": p.sizes.filled(a.self, 0),
        "target": p.sizes.filled(p.as_in(a.target, samples), a.ignore_index),
    }
    if hasattr(a, "grad_output"):
        changed["grad_output"] = p.sizes.filled(p.as_in(a.grad_output, samples), 0)
        return p.array(p.call(a, **changed), a.self.dims)
    loss, weight = p.call(a, **changed)
    return (p.array(loss, samples if a.reduction == 0 else ()), p.array(weight, ()))


@_rule(aten.native_layer_norm, aten._fused_rms_norm)
def _layer_norm(p: Padding, a: SimpleNamespace) -> tuple[Array, ...]:
    n = len(a.normalized_shape)
    outer = range(len(a.input.dims) - n)
    p.only_in(a.input, outer)
    r = p.call(a)
    few = [*(a.input.dims[d] for d in outer), *[(1,)] * n]
    return (p.array(r[0], a.input.dims), *(p.array(x, few) for x in r[1:]))


@_rule(aten.native_layer_norm_backward, aten._fused_rms_norm_backward)
def _layer_norm_backward(p: Padding, a: SimpleNamespace) -> tuple[Array | None, ...]:
    p.only_in(a.input, range(len(a.input.dims) - len(a.normalized_shape)))
    n = len(a.normalized_shape)
    few = [*a.input.dims[: len(a.input.dims) - n], *[(1,)] * n]
    dims = {"grad_out": a.input.dims, "input": a.input.dims, "mean": few, "rstd": few}
    clean = {
        n: p.sizes.filled(p.as_in(getattr(a, n), d), 0) for n, d in dims.items() if hasattr(a, n)
    }
    r = p.call(a, **clean)
    grads: list[Array | None] = [None if r[0] is None else p.array(r[0], a.input.dims)]
    for t in r[1:]:
        grads.append(None if t is None else p.array(t, [(int(n),) for n in t.shape]))
    return tuple(grads)


def _strided_dims(p: Padding, fake: torch.Tensor, tensor: torch.Tensor) -> list[Dim]:
    """The dims of a result that are sizes of its own; what they are on the bucket's sizes."""
    dims: list[Dim] = [(s,) for s in sizes_of(fake)]
    if p.sizes.bounds_of(dims) != list(tensor.shape):
        raise p.refuse(f"{list(tensor.shape)} elements where {p.sizes.bounds_of(dims)} were due")
    return dims


@_rule(aten.convolution)
def _convolution(p: Padding, a: SimpleNamespace) -> Array:
    p.only_in(a.weight, [])
    spatial = range(2, len(a.input.dims))
    p.only_in(a.input, [0] if a.transposed else [0, *spatial])
    result = p.call(a, input=p.sizes.filled(a.input, 0, spatial))
    return p.array(result, [a.input.dims[0], *_strided_dims(p, p.fake, result)[1:]])


@_rule(aten.convolution_backward)
def _convolution_backward(p: Padding, a: SimpleNamespace) -> tuple[Array | None, ...]:
    p.only_in(a.weight, [])
    p.only_in(a.input, [0] if a.transposed else range(len(a.input.dims)))
    p.broadcast([a.grad_output.dims[:1], a.input.dims[:1]])
    clean = {n: p.sizes.filled(getattr(a, n), 0) for n in ("grad_output", "input")}
    r = p.call(a, **clean)
    dims = (a.input.dims, a.weight.dims, None)
    return tuple(
        None if t is None else p.array(t, d or [(int(n),) for n in t.shape])
        for t, d in zip(r, dims, strict=True)
    )


@_rule(
    aten.avg_pool2d, aten.max_pool2d_with_indices, aten._adaptive_avg_pool2d,
    aten.max_pool3d_with_indices, aten.avg_pool3d, aten._adaptive_avg_pool3d,
    aten.adaptive_max_pool2d, aten.upsample_nearest2d, aten.upsample_bilinear2d,
    aten.upsample_nearest1d, aten.upsample_linear1d, aten.upsample_bicubic2d,
    aten.upsample_nearest3d, aten.upsample_trilinear3d, aten.reflection_pad1d,
    aten.reflection_pad2d, aten.replication_pad1d, aten.replication_pad2d,
)  # fmt: skip
def _of_each_sample(p: Padding, a: SimpleNamespace) -> Any:
    """Ops that treat the samples of a batch one by one."""
    x: Array = a.self if hasattr(a, "self") else a.input
    p.only_in(x, [0])
    result = p.call(a)
    one = isinstance(result, torch.Tensor)
    arrays = [
        p.array(t, [x.dims[0], *[(int(n),) for n in t.shape[1:]]])
        for t in ([result] if one else result)
    ]
    return arrays[0] if one else tuple(arrays)


@_rule(
    aten.max_pool2d_with_indices_backward, aten.avg_pool2d_backward,
    aten._adaptive_avg_pool2d_backward, aten.max_pool3d_with_indices_backward,
)  # fmt: skip
def _of_each_sample_backward(p: Padding, a: SimpleNamespace) -> Array:
    p.only_in(a.self, [0])
    p.broadcast([a.self.dims[:1], a.grad_output.dims[:1]])
    changed: dict[str, Any] = {"grad_output": p.sizes.filled(a.grad_output, 0)}
    if hasattr(a, "indices"):
        changed["indices"] = p.sizes.filled(a.indices, 0)
    return p.array(p.call(a, **changed), a.self.dims)


@_rule(aten._native_batch_norm_legit_no_training, aten._batch_norm_no_update)
def _batch_norm_as_learnt(p: Padding, a: SimpleNamespace) -> tuple[Any, ...]:
    if len(a.input.dims) > 1 and symbolic(a.input.dims[1]):
        raise p.refuse("channels vary")
    r = p.call(a)
    return (p.array(r[0], a.input.dims), *(p.array(x, [(int(n),) for n in x.shape]) for x in r[1:]))


# -- the run of a graph ----------------------------------------------------------------------------


def apply(sizes: Sizes, node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The op of a node on Arrays; sizes among the arguments are those of the fake tensors."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        raise NotPaddable(f"nothing is known of {target}")
    rule = RULES.get(target.overloadpacket)
    if rule is None:
        if torch.Tag.pointwise not in target.tags:
            raise NotPaddable(f"{target} has no rule")
        rule = pointwise
    if torch.Tag.nondeterministic_seeded in target.tags and rule is pointwise:
        raise NotPaddable(f"{target} draws as many numbers as there are elements")
    if target._schema.is_mutable:
        raise NotPaddable(f"{target} writes")
    names = [x.name for x in target._schema.arguments]
    a = SimpleNamespace(**{x.name: x.default_value for x in target._schema.arguments})
    vars(a).update(zip(names, args, strict=False))
    vars(a).update(kwargs)
    p = Padding(sizes, node)
    result = rule(p, a)
    _verify(p, result, node.meta["val"])
    return result


def _verify(p: Padding, result: Any, fake: Any) -> None:
    """The result has the fake tensor's dtype and sizes, padded as its dims say."""
    if isinstance(result, Array):
        for dim, want in zip(result.dims, sizes_of(fake), strict=True):
            if sympy.expand(sympy.sympify(size(dim)) - want) != 0:
                raise p.refuse(f"a dim of {size(dim)} where {want} was due")
        if result.tensor.dtype != fake.dtype:
            raise p.refuse(f"{result.tensor.dtype} where {fake.dtype} was due")
        if list(result.tensor.shape) != p.sizes.bounds_of(result.dims):
            raise p.refuse(f"{list(result.tensor.shape)} elements for {result.dims}")
    elif isinstance(result, tuple):
        for r, f in zip(result, fake, strict=True):
            _verify(p, r, f)
