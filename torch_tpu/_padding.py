"""Graphs with sizes that change, as one program for many of them.

A size that is a symbol is rounded up to one of a few buckets. The program works on arrays of the
bucket's sizes; how much of them is real it learns from a tensor of the sizes, so that another
length compiles nothing. What pads an array has no meaning and may be NaN: an op that mixes
elements along a padded dim masks it first (torch_tpu/_padding_rules.py). An op without a rule
makes the whole graph NotPaddable, and it is compiled for every size instead.

Arguments and results pass as one-dimensional arrays that begin with the tensor's elements
(src/bridge/prefix.h): only within the program are they padded dim by dim.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import sympy
import torch
from torch import fx
from torch.utils._sympy.functions import FloorDiv, Max, Min
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import TensorReferenceAnalysis

from torch_tpu import _C
from torch_tpu._strides import inverse, laid_out

SMALLEST = 16  # bucket
GROWTH = 4  # from one bucket to the next, and the most that a larger size is rounded up by
MOST = 3  # buckets of one symbol; after that only sizes above all of them get another

Size: TypeAlias = Any  # int or sympy.Expr; sympy has no types


class NotPaddable(Exception):
    """Why a graph cannot be computed on padded arrays."""


def size_of(s: Any) -> Size:
    """A size of a fake tensor as a number or an expression."""
    if isinstance(s, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        s = s.node.expr
    if isinstance(s, sympy.Expr) and s.is_Integer:
        return int(s)
    return s


def sizes_of(fake: torch.Tensor) -> list[Size]:
    return [size_of(s) for s in fake.shape]


def is_symbolic(s: Any) -> bool:
    return isinstance(s, sympy.Basic) and not s.is_number


def _grows(e: sympy.Expr) -> bool:
    """Whether the expression cannot become smaller when a symbol becomes larger."""
    if e.is_number or e.is_Symbol:
        return True
    if isinstance(e, sympy.Mul):
        return all(_grows(a) and (a.is_Symbol or a.is_nonnegative) for a in e.args)
    if isinstance(e, FloorDiv):
        return bool(_grows(e.args[0]) and e.args[1].is_number and e.args[1] > 0)
    if isinstance(e, (sympy.Add, Max, Min)):
        return all(map(_grows, e.args))
    return False


# -- buckets ---------------------------------------------------------------------------------------


class Buckets:
    """The sizes that a symbol is rounded up to: few, and not far above what is asked for.

    `varies`: it is known to change. Otherwise the first size is not rounded, since it may be the
    only one, and that of a batch that multiplies all work.
    """

    def __init__(self, most: int | None, varies: bool) -> None:
        self.most = most  # as large as the symbol may become, if that is known
        self.exact: int | None = None
        self.varies = varies
        self.made: list[int] = []

    def of(self, size: int) -> int:
        """The bucket of a size; a new one where all are too small, or much too large."""
        if not self.varies:
            self.exact = size
            self.varies = True
        if size == self.exact:
            return size
        fitting = min((b for b in self.made if b >= size), default=None)
        if fitting is not None:
            if fitting <= max(SMALLEST, GROWTH * size) or len(self.made) >= MOST:
                return fitting
            new = max(size, fitting // GROWTH)
        else:
            new = max(size, min(GROWTH * max(self.made, default=0), GROWTH * size))
        new = max(SMALLEST, -(-new // 8) * 8)
        if self.most is not None:
            new = max(size, min(new, self.most))
        self.made.append(new)
        return new


# Those of a symbol are the same in all graphs of one compiled function: what a forward pass keeps
# for the backward pass is padded alike in both.
_buckets: WeakKeyDictionary[Any, dict[sympy.Symbol, Buckets]] = WeakKeyDictionary()


def _buckets_of(symbol: sympy.Symbol, fake: torch.SymInt) -> Buckets:
    env: Any = fake.node.shape_env
    most = env.var_to_range[symbol].upper if symbol in env.var_to_range else None
    limited = most is not None and most.is_Integer and most < 2**31
    known = _buckets.setdefault(env, {})
    if symbol not in known:
        # dynamic=True makes symbols of all sizes, whether they change or not.
        varies = torch._dynamo.config.assume_static_by_default
        known[symbol] = Buckets(int(most) if most is not None and limited else None, varies)
    return known[symbol]


# -- arrays ----------------------------------------------------------------------------------------

# A dim is a product of factors, outermost first. Of each factor the first elements are real: of a
# dim (4, s) with s padded to 8, those at 0 to s - 1, 8 to 8 + s - 1 and so on.
Dim: TypeAlias = tuple[Size, ...]


def joined(factors: Sequence[Size]) -> Dim:
    """The factors as a dim: numbers that belong together are one."""
    out: list[Size] = []
    for f in factors:
        if f == 1:
            continue
        # A symbol and the numbers after it are real from the first element on, together.
        if out and isinstance(f, int):
            out[-1] = size_of(sympy.expand(out[-1] * f))
        else:
            out.append(f)
    return tuple(out) or (1,)


def size(dim: Dim) -> Size:
    return size_of(sympy.expand(sympy.Mul(*dim)))


def symbolic(dim: Dim) -> bool:
    return any(map(is_symbolic, dim))


@dataclasses.dataclass(frozen=True)
class Array:
    """A tensor with the bucket's sizes, and how its dims are padded."""

    tensor: torch.Tensor
    dims: tuple[Dim, ...]

    @property
    def padded(self) -> bool:
        return any(map(symbolic, self.dims))


class Sizes:
    """The numbers behind the symbols while a program is traced: bounds, and run-time values."""

    def __init__(
        self, symbols: Sequence[sympy.Symbol], bounds: Sequence[int], values: torch.Tensor
    ):
        """`values`: int64 [symbols], a placeholder. A bound of 0: the symbol is no size."""
        self.bounds = {s: sympy.Integer(b) for s, b in zip(symbols, bounds, strict=True) if b}
        self.values = {s: values[i] for i, s in enumerate(symbols)}
        self.device = values.device
        self.known: dict[Any, torch.Tensor] = {}

    def bound(self, s: Size) -> int:
        """How many elements an array has for that size."""
        if isinstance(s, int):
            return s
        if not _grows(s):
            return self._most(s)
        number = s.xreplace(self.bounds)
        if not number.is_Integer:
            raise NotPaddable(f"the size {s} depends on data")
        return int(number)

    def _most(self, e: sympy.Expr) -> int:
        """The largest value of an expression that also falls when its symbol grows."""
        (symbol, *more) = e.free_symbols
        if more or symbol not in self.bounds:
            raise NotPaddable(f"the size {e} does not grow with its symbols")
        every = torch.arange(2, int(self.bounds[symbol]) + 1)
        return int(sympy_interp(TensorReferenceAnalysis, {symbol: every}, e).max())

    def bounds_of(self, dims: Sequence[Dim]) -> list[int]:
        return [self.bound_of(d) for d in dims]

    def bound_of(self, dim: Dim) -> int:
        return math.prod(map(self.bound, dim))

    def value(self, s: Any) -> torch.Tensor:
        """The number itself, a 0-d tensor: int64, or float64 of a fraction."""
        s = size_of(s)
        if s not in self.known:
            if isinstance(s, (int, float, bool)) or s.is_number:
                number = s if isinstance(s, (int, float)) else float(s)
                self.known[s] = torch.tensor(number, device=self.device)
            elif missing := s.free_symbols - self.values.keys():
                raise NotPaddable(f"{min(map(str, missing))} depends on data")
            else:
                found = sympy_interp(TensorReferenceAnalysis, self.values, s)
                self.known[s] = torch.as_tensor(found, device=self.device)
        return self.known[s]

    def positions(self, length: int) -> torch.Tensor:
        return torch.arange(length, device=self.device)

    def real(self, dim: Dim) -> torch.Tensor:
        """Bool [bound]: which elements of a dim are no padding."""
        at = self.positions(self.bound_of(dim))
        if len(dim) == 1 and is_symbolic(dim[0]):
            return at < self.value(dim[0])
        real, inner = None, 1
        for f in reversed(dim):
            length = self.bound(f)
            if is_symbolic(f):
                here = (at // inner) % length < self.value(f)
                real = here if real is None else real & here
            inner *= length
        return torch.ones_like(at, dtype=torch.bool) if real is None else real

    def mask(self, a: Array, dims: Sequence[int]) -> torch.Tensor | None:
        """Where an array is real in those dims, broadcastable; None: everywhere."""
        found = None
        for d in dims:
            if not symbolic(a.dims[d]):
                continue
            here = self.real(a.dims[d]).reshape([-1 if i == d else 1 for i in range(len(a.dims))])
            found = here if found is None else found & here
        return found

    def filled(self, a: Array, fill: Any, dims: Sequence[int] | None = None) -> torch.Tensor:
        """The tensor, with `fill` where it is padding in those dims (all)."""
        mask = self.mask(a, range(len(a.dims)) if dims is None else dims)
        return a.tensor if mask is None else a.tensor.masked_fill(~mask, fill)

    def relaid(self, x: torch.Tensor, d: int, old: Dim, new: Dim) -> torch.Tensor:
        """The tensor with a dim that is padded as `new` says, of the same size as `old`."""
        # Of each new place: which of the real elements it holds, and where that lies.
        place = self.positions(self.bound_of(new))
        element, inner = torch.zeros_like(place), 1
        real: Any = 1
        for f in reversed(new):
            element = element + place // inner % self.bound(f) * real
            real, inner = real * self.value(f), inner * self.bound(f)
        source, inner = torch.zeros_like(place), 1
        for f in reversed(old):
            source = source + element % self.value(f) * inner
            element, inner = element // self.value(f), inner * self.bound(f)
        return x.index_select(d, source.clamp(0, x.shape[d] - 1))

    # -- between arrays and the elements one after the other

    def _rows(self, sizes: Sequence[Size]) -> tuple[list[Size], int]:
        """The leading dims that are padded, and the elements of what follows them."""
        last = max((i for i, s in enumerate(sizes) if is_symbolic(s)), default=-1)
        return list(sizes[: last + 1]), self.bound_of(tuple(sizes[last + 1 :]))

    def room(self, sizes: Sequence[Size]) -> int:
        """The elements of a one-dimensional array for these sizes.

        Somewhat more than fit: a tensor that a program has made one longer is still one that it
        takes.
        """
        n = 1
        for s in sizes:
            n *= self.bound(s) // 8 * 8 + 8 if is_symbolic(s) else self.bound(s)
        return n

    def _in_place(self, outer: Sequence[Size]) -> bool:
        """Whether padding the dims moves no element: only the outermost one is padded."""
        return all(s == 1 for s in outer[:-1])

    def unpack(self, flat: torch.Tensor, sizes: Sequence[Size]) -> Array:
        """An array from the elements in row-major order."""
        outer, inner = self._rows(sizes)
        shape = [self.bound(s) for s in sizes]
        dims = tuple((s,) for s in sizes)
        if self._in_place(outer):
            flat = flat[: math.prod(shape)]
        else:
            at = torch.zeros([1] * len(outer), dtype=torch.int64, device=self.device)
            for d, s in enumerate(outer):
                here = self.positions(shape[d]).reshape([-1] + [1] * (len(outer) - 1 - d))
                at = at * self.value(s) + here
            rows = flat.reshape(-1, inner)
            at = at.expand(shape[: len(outer)]).reshape(-1).clamp_max(rows.shape[0] - 1)
            flat = rows.index_select(0, at)
        return Array(flat.reshape(shape), dims)

    def pack(self, tensor: torch.Tensor, sizes: Sequence[Size]) -> torch.Tensor:
        """The elements of a padded tensor in row-major order, then others."""
        outer, inner = self._rows(sizes)
        tensor = tensor.reshape([self.bound(s) for s in sizes])
        missing = self.room(sizes) - tensor.numel()
        if self._in_place(outer):
            return torch.cat([tensor.reshape(-1), tensor.new_zeros(missing)])
        rows = tensor.reshape(-1, inner)
        at = self.positions(rows.shape[0])
        source, stride = torch.zeros_like(at), 1
        for d in reversed(range(len(outer))):
            length = self.value(outer[d])
            source = source + at % length * stride
            at, stride = at // length, stride * tensor.shape[d]
        flat = rows.index_select(0, source).reshape(-1)
        return torch.cat([flat, flat.new_zeros(missing)])


# -- a graph ---------------------------------------------------------------------------------------


def order_of(fake: torch.Tensor) -> list[int]:
    """The dims of a fake tensor, outermost in memory first."""

    def sample(stride: Any) -> float:
        e = size_of(stride)
        if isinstance(e, int):
            return e
        symbols = sorted(e.free_symbols, key=str)
        return float(e.xreplace({s: sympy.Integer(1009 + 16 * i) for i, s in enumerate(symbols)}))

    return sorted(range(fake.dim()), key=lambda d: -sample(fake.stride(d)))


@dataclasses.dataclass(frozen=True)
class Form:
    """An argument or a result whose sizes vary."""

    sizes: tuple[Size, ...]  # outermost in memory first
    order: tuple[int, ...]  # which dims those are

    @staticmethod
    def of(fake: torch.Tensor) -> Form:
        order = order_of(fake)
        sizes = sizes_of(fake)
        return Form(tuple(sizes[d] for d in order), tuple(order))

    @property
    def plain(self) -> bool:
        return list(self.order) == list(range(len(self.order)))


Evaluate = Callable[..., int]


def _evaluator(symbols: Sequence[sympy.Symbol], e: Size) -> Evaluate:
    if isinstance(e, int):
        return lambda *_: e
    if e in symbols:
        at = list(symbols).index(e)
        return lambda *n: n[at]
    return lambda *n: int(e.xreplace(_numbers(symbols, n)))


def _numbers(
    symbols: Sequence[sympy.Symbol], values: Sequence[int]
) -> dict[sympy.Symbol, sympy.Integer]:
    return {s: sympy.Integer(n) for s, n in zip(symbols, values, strict=True)}


def _size(argument: int, dim: int) -> Callable[[list[Any]], int]:
    return lambda args: int(args[argument].shape[dim])


class PaddedGraph:
    """What is known of a graph before it is traced for a bucket.

    Raises NotPaddable when its arguments or results cannot be padded.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        self.graph = graph
        self.inputs = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self.symbols: list[sympy.Symbol] = []
        self.sources: list[Callable[[list[Any]], int]] = []
        self.buckets: list[Buckets] = []
        self._find_symbols()
        lengths: set[Any] = set()
        for node in graph.graph.nodes:
            for fake in torch.utils._pytree.tree_leaves(node.meta.get("val")):
                if isinstance(fake, torch.Tensor):
                    lengths.update(*(s.free_symbols for s in sizes_of(fake) if is_symbolic(s)))
        # A symbol may also be nothing but a number that is computed with.
        self.is_length = [s in lengths for s in self.symbols]
        if not any(self.is_length):
            raise NotPaddable("no size is a symbol")
        self.forms: dict[int, Form] = {}  # of arguments
        self.static: list[int] = []  # arguments that are tensors of one size
        for i, node in enumerate(self.inputs):
            fake = node.meta.get("val")
            if not isinstance(fake, torch.Tensor):
                continue
            if fake.device.type != "tpu":
                raise NotPaddable(f"{node.name} lies on the host")
            if any(map(is_symbolic, sizes_of(fake))):
                if fake.layout != torch.strided or fake.is_conj() or fake.is_neg():
                    raise NotPaddable(f"{node.name} is no plain tensor")
                self.forms[i] = Form.of(fake)
            else:
                self.static.append(i)
        (output,) = (n for n in graph.graph.nodes if n.op == "output")
        self.outputs: list[Any] = list(output.args[0])
        # Behind those that the user gets lies what the backward pass needs.
        context = torch._guards.TracingContext.try_get()
        meta = context.fw_metadata if context is not None else None
        self.returned = meta.num_forward_returns if meta is not None else len(self.outputs)
        self.checks = list(self._checks())
        self.makers = [self._maker(x) for x in self.outputs]
        self.views = dict(self._views())

    def _find_symbols(self) -> None:
        def add(s: sympy.Symbol, source: Callable[[list[Any]], int], fake: Any) -> None:
            if s not in self.symbols:
                self.symbols.append(s)
                self.sources.append(source)
                self.buckets.append(_buckets_of(s, fake))

        for i, node in enumerate(self.inputs):
            fake = node.meta.get("val")
            if isinstance(fake, torch.SymInt):
                e = size_of(fake)
                if is_symbolic(e) and e.is_Symbol:
                    add(e, operator.itemgetter(i), fake)
            elif isinstance(fake, (torch.SymFloat, torch.SymBool)):
                raise NotPaddable(f"{node.name} is a number, but no size")
        for i, node in enumerate(self.inputs):
            fake = node.meta.get("val")
            if isinstance(fake, torch.Tensor):
                for d, s in enumerate(fake.shape):
                    e = size_of(s)
                    if is_symbolic(e) and e.is_Symbol:
                        add(e, _size(i, d), s)

    def _checks(self) -> Iterator[tuple[Any, str]]:
        """Conditions on the sizes that every call has to meet."""
        for node in self.graph.graph.nodes:
            if node.op == "call_function" and node.target is torch.ops.aten._assert_scalar.default:
                condition, text = node.args
                value = condition.meta["val"] if isinstance(condition, fx.Node) else condition
                if isinstance(value, torch.SymBool):
                    yield value.node.expr, text

    def _maker(self, x: Any) -> Callable[[list[int]], Any] | None:
        """How a result that is no tensor is computed from the sizes; None for tensors."""
        fake = x.meta.get("val") if isinstance(x, fx.Node) else x
        if isinstance(fake, torch.Tensor):
            return None
        if isinstance(fake, torch.SymInt):
            run = _evaluator(self.symbols, size_of(fake))
            return lambda n: run(*n)
        if fake is None or isinstance(fake, (int, float, bool)):
            return lambda _: fake
        raise NotPaddable(f"a result is a {type(fake).__name__}")

    def _views(self) -> Iterator[tuple[int, _View]]:
        """Results that lie in the memory of arguments, or of other results."""
        arguments = {_storage(x.meta.get("val")): i for i, x in enumerate(self.inputs)}
        fakes = [x.meta.get("val") if isinstance(x, fx.Node) else None for x in self.outputs]
        bases: dict[int | None, int] = {}
        for n, fake in enumerate(fakes):
            if isinstance(fake, torch.Tensor) and _is_whole(fake):
                bases.setdefault(_storage(fake), n)
        for n, fake in enumerate(fakes):
            if not isinstance(fake, torch.Tensor):
                continue
            i, m = arguments.get(_storage(fake), -1), bases.get(_storage(fake), n)
            of: Any = self.inputs[i].meta["val"] if i >= 0 else fakes[m]
            if i < 0 and (m == n or not any(is_symbolic(s) for s in sizes_of(of))):
                continue
            if of.dtype != fake.dtype:
                raise NotPaddable("a result is an argument's memory as another dtype")
            geometry = _Geometry(self.symbols, fake)
            if i >= 0:
                yield n, _View(geometry, argument=i, base=_Geometry(self.symbols, of))
            elif n < self.returned:
                yield n, _View(geometry, result=m)

    def numbers(self, args: list[Any]) -> list[int]:
        """What the symbols are in a call."""
        return [source(args) for source in self.sources]

    def bounds(self, numbers: list[int]) -> tuple[int, ...] | None:
        """The buckets of a call; 0 for what is no size. None where a size is 0."""
        found = []
        for n, is_length, buckets in zip(numbers, self.is_length, self.buckets, strict=True):
            if is_length and n < 1:
                return None
            found.append(buckets.of(n) if is_length else 0)
        return tuple(found)

    def verify(self, numbers: list[int]) -> None:
        """Raises RuntimeError where a condition of the graph does not hold."""
        for condition, text in self.checks:
            known = _numbers(self.symbols, numbers)
            if condition.xreplace(known) == sympy.false:
                raise RuntimeError(text)


Geometry = tuple[list[int], list[int], int]  # sizes, strides, offset


class _Geometry:
    """Those of a fake tensor, from the numbers of a call."""

    def __init__(self, symbols: Sequence[sympy.Symbol], fake: torch.Tensor) -> None:
        self.sizes = [_evaluator(symbols, size_of(s)) for s in fake.shape]
        self.strides = [_evaluator(symbols, size_of(s)) for s in fake.stride()]
        self.offset = _evaluator(symbols, size_of(fake.storage_offset()))

    def __call__(self, numbers: list[int]) -> Geometry:
        sizes = [s(*numbers) for s in self.sizes]
        strides = [s(*numbers) for s in self.strides]
        return sizes, strides, self.offset(*numbers)


def _dense(sizes: list[int], strides: list[int], order: Sequence[int]) -> list[int]:
    """Strides without gaps in that order of dims; those given where they have none."""
    dense, expected = list(strides), 1
    for d in reversed(order):
        if sizes[d] != 1:
            dense[d] = expected
        expected *= sizes[d]
    return dense


@dataclasses.dataclass(frozen=True)
class _View:
    """A result in the memory of an argument, or of another result.

    AOTAutograd makes the user's view again from where a result lies in its base.
    """

    geometry: _Geometry
    argument: int = -1
    base: _Geometry | None = None  # of the argument
    result: int = -1

    def of_argument(self, args: list[Any], numbers: list[int]) -> torch.Tensor:
        arg = args[self.argument]
        sizes, strides, offset = self.geometry(numbers)
        begin = arg.storage_offset() - self.base(numbers)[2]  # type: ignore[misc]
        return torch.as_strided(arg, sizes, strides, offset + begin)

    def of_result(self, results: list[Any], numbers: list[int]) -> torch.Tensor:
        return torch.as_strided(results[self.result], *self.geometry(numbers))


def _storage(fake: Any) -> int | None:
    return fake.untyped_storage()._cdata if isinstance(fake, torch.Tensor) else None


def _is_whole(fake: torch.Tensor) -> bool:
    """Whether a fake tensor is all of its storage, element by element."""
    sizes = sizes_of(fake)
    strides = [size_of(s) for s in fake.stride()]
    expected = sympy.Integer(fake.dtype.itemsize)
    for d in reversed(order_of(fake)):
        if sizes[d] != 1 and sympy.expand(expected - strides[d] * fake.dtype.itemsize) != 0:
            return False
        expected = sympy.expand(expected * sizes[d])
    whole = size_of(fake.untyped_storage().nbytes())
    return bool(size_of(fake.storage_offset()) == 0 and sympy.expand(whole - expected) == 0)


class PaddedProgram:
    """A graph traced for one bucket of each symbol."""

    def __init__(
        self,
        padded: PaddedGraph,
        bounds: tuple[int, ...],
        device: int,
        run: Callable[[Sizes, list[Any], list[torch.Tensor]], list[Any]],
        args: list[Any],
        held: tuple[torch.Tensor, ...],
    ) -> None:
        """`run`: the graph on these sizes, arguments (Arrays) and attributes, giving Arrays."""
        self.padded, self.device = padded, device
        self.where = torch.device("tpu", device)
        tracing = _C.Tracing(device)
        tracing.enter()
        try:
            with torch.no_grad(), torch._C._DisableAutocast():
                values = tracing.placeholder([len(bounds)], [1], torch.int64)
                sizes = Sizes(padded.symbols, bounds, values)
                self.lengths: dict[int, int] = {}  # elements of the padded arguments
                inputs: list[Any] = []
                for i, x in enumerate(args):
                    if form := padded.forms.get(i):
                        self.lengths[i] = sizes.room(form.sizes)
                        flat = tracing.placeholder([self.lengths[i]], [1], x.dtype)
                        a = sizes.unpack(flat, form.sizes)
                        back = inverse(form.order)
                        inputs.append(Array(a.tensor.permute(back), tuple(a.dims[d] for d in back)))
                    elif isinstance(x, torch.Tensor):
                        t = tracing.placeholder(list(x.shape), list(x.stride()), x.dtype)
                        inputs.append(Array(t, tuple((int(s),) for s in x.shape)))
                    else:
                        inputs.append(x)
                kept = [tracing.placeholder(list(x.shape), list(x.stride()), x.dtype) for x in held]
                outputs = run(sizes, inputs, kept)
                tensors: list[torch.Tensor | None] = []
                # Geometry and order of the dims of results that vary and have their own memory.
                self.results: dict[int, tuple[_Geometry, list[int]]] = {}
                for n, (node, out) in enumerate(zip(padded.outputs, outputs, strict=True)):
                    tensors.append(None)
                    if n in padded.views or not isinstance(out, Array):
                        continue
                    fake = node.meta["val"]
                    if not out.padded:
                        tensors[-1] = _as_fake(out.tensor, fake)
                        continue
                    form = Form.of(fake)
                    factors = [f for d in form.order for f in out.dims[d]]
                    tensors[-1] = sizes.pack(out.tensor.permute(form.order), factors)
                    self.results[n] = (_Geometry(padded.symbols, fake), list(form.order))
                self.graph = tracing.graph(tensors)
        finally:
            tracing.exit()

    def __call__(
        self, args: list[Any], numbers: list[int], held: tuple[torch.Tensor, ...]
    ) -> list[Any] | None:
        tensors = [torch.tensor(numbers).to(self.where)]
        for i, x in enumerate(args):
            if isinstance(x, torch.Tensor):
                if length := self.lengths.get(i):
                    form = self.padded.forms[i]
                    tensors.append(_C.padded(x if form.plain else x.permute(form.order), length))
                else:
                    tensors.append(x)
        views = self.padded.views
        made = {n: v.of_argument(args, numbers) for n, v in views.items() if v.argument >= 0}  # type: dict[int, torch.Tensor]
        given = list(args)
        args.clear()
        results = self.graph(tensors, held)  # empties the list
        if results is None:
            args[:] = given
            return None
        del given
        for n, (geometry, order) in self.results.items():
            shape, strides, _ = geometry(numbers)
            results[n] = _C.prefix(results[n], shape, _dense(shape, strides, order))
        for n, make in enumerate(self.padded.makers):
            if make is not None:
                results[n] = make(numbers)
        for n, v in views.items():
            results[n] = made[n] if n in made else v.of_result(results, numbers)
        return results


def _as_fake(t: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    """The same tensor with the strides of its fake one, or its order where they vary."""
    strides = [size_of(s) for s in fake.stride()]
    if any(map(is_symbolic, strides)):
        return laid_out(t, order_of(fake))
    if t.stride() == fake.stride() or t.numel() == 0:
        return t
    out = torch.empty_strided(t.shape, fake.stride(), dtype=t.dtype, device=t.device)
    return out.copy_(t)
