"""Random chains of views and writes on `tpu` and on the CPU, side by side, must stay equal.

A program is a seed: it makes a few storages and then takes steps, each a view of a live tensor, a
write through one, a computation or a read. After it, every live tensor must equal its CPU twin in
values (bit for bit where bits were moved), dtype, sizes, strides, offset, version counter, base and
distance to other addresses of its storage; and what raises on the CPU must raise the same here.

    python tests/views/test_property.py --seeds 10000 --mode fused      # the long run
    python tests/views/test_property.py --first 4711 --seeds 1 --mode strict --verbose
"""

import argparse
import random
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from torch_tpu.mode import EagerMode, set_eager_mode

MODES = {
    "debug": EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING,
    "strict": EagerMode.DEFER_NEVER,
    "fused": EagerMode.DEFER_AND_FUSE,
}

INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
COMPLEX = [torch.complex64, torch.complex128]
# The CPU has no arithmetic for these: they are moved and filled only.
MOVED = [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]
BASES = [*FLOATS, torch.float32, *INTS, torch.int64, torch.bool, *COMPLEX, *MOVED]

MAX_NUMEL = 256


class Mismatch(AssertionError):
    pass


@dataclass(eq=False)
class Memory:
    """What a storage may be used for.

    `bits`: it holds patterns that need not be sound numbers. `bools`: its bytes are 0 or 1.
    """

    bits: bool = False
    bools: bool = False


@dataclass(eq=False)
class Pair:
    """A tensor on the CPU and its twin on the device."""

    c: torch.Tensor
    t: torch.Tensor
    memory: Memory
    name: str

    @property
    def arithmetic(self) -> bool:
        if self.c.dtype in INTS or self.c.dtype == torch.bool:
            return self.c.dtype == torch.bool or not self.memory.bools
        return self.c.dtype in (*FLOATS, *COMPLEX) and not self.memory.bits


def places(c: torch.Tensor) -> torch.Tensor:
    """Number of the first byte of each element in its storage."""
    n = c.untyped_storage().nbytes()
    size = c.element_size()
    at = torch.arange(n + size)[::size] if size > 1 else torch.arange(n + 1)
    return at.as_strided(c.shape, c.stride(), c.storage_offset())


def bytes_of(c: torch.Tensor) -> torch.Tensor:
    return (places(c).reshape(-1, 1) + torch.arange(c.element_size())).reshape(-1)


def overlaps_itself(c: torch.Tensor) -> bool:
    p = places(c).reshape(-1)
    return p.unique().numel() != p.numel()


def same_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def undefined(dst: torch.Tensor, src: torch.Tensor) -> bool:
    """True when the CPU's result of a write depends on the order in which it walks."""
    if not same_storage(dst, src) or not dst.numel() or not src.numel():
        return False
    identical = (
        dst.shape == src.shape
        and dst.stride() == src.stride()
        and dst.storage_offset() == src.storage_offset()
        and dst.dtype == src.dtype
        and dst.is_conj() == src.is_conj()
    )
    if identical:
        return False
    if refused(dst, src):
        return False
    return bool(torch.isin(bytes_of(dst), bytes_of(src)).any())


def refused(dst: torch.Tensor, src: torch.Tensor) -> bool:
    """True when TensorIterator sees that the two share a part of their memory."""
    dense = torch.ops.aten.is_non_overlapping_and_dense
    if not (dense(dst) and dense(src)):
        return False
    a, b = bytes_of(dst), bytes_of(src)
    return bool(a.min() <= b.max() and b.min() <= a.max())


@dataclass
class Program:
    seed: int
    verbose: bool = False
    live: list[Pair] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.r = random.Random(self.seed)
        self.names = 0

    # ---- Small choices.

    def number(self, dtype: torch.dtype, bools: bool = False) -> complex | float | int | bool:
        r = self.r
        if bools and dtype != torch.bool:
            return r.randint(0, 1)
        if dtype == torch.bool:
            return r.random() < 0.5
        if dtype in COMPLEX:
            return complex(r.randint(-4, 4), r.randint(-4, 4))
        if dtype.is_floating_point:
            return r.randint(-8, 8) / 2
        return r.randint(0, 6) if dtype in (torch.uint8, *MOVED) else r.randint(-6, 6)

    def values(
        self, shape: tuple[int, ...], dtype: torch.dtype, bools: bool = False
    ) -> torch.Tensor:
        n = 1
        for s in shape:
            n *= s
        flat = torch.tensor(
            [self.number(dtype, bools) for _ in range(n)],
            dtype=torch.complex128 if dtype in COMPLEX else torch.float64,
        )
        return flat.reshape(shape).to(dtype)

    def shape(self) -> tuple[int, ...]:
        r = self.r
        rank = r.choice([0, 1, 1, 2, 2, 2, 3, 3, 3, 4])
        sizes = [r.choice([1, 2, 2, 3, 4, 4, 5, 6, 8]) for _ in range(rank)]
        if rank and r.random() < 0.03:
            sizes[r.randrange(rank)] = 0
        while len(sizes) > 1 and torch.Size(sizes).numel() > 160:
            sizes.pop()
        return tuple(sizes)

    def pick(self, want: Callable[[Pair], bool] = lambda p: True) -> Pair | None:
        some = [p for p in self.live if want(p)]
        return self.r.choice(some) if some else None

    # ---- Steps.

    def say(self, text: str) -> None:
        self.log.append(text)
        if self.verbose:
            print("   ", text, flush=True)

    def enter(self, c: torch.Tensor, t: torch.Tensor, memory: Memory) -> Pair:
        name = f"x{self.names}"
        self.names += 1
        p = Pair(c, t, memory, name)
        self.live.append(p)
        if len(self.live) > 12:
            self.live.pop(self.r.randrange(len(self.live)))
        return p

    def base(self, dtype: torch.dtype | None = None) -> Pair:
        dtype = dtype or self.r.choice(BASES)
        c = self.values(self.shape(), dtype).clone()
        layout = ""
        if c.dim() > 1 and self.r.random() < 0.25:
            order = list(range(c.dim()))
            self.r.shuffle(order)
            c = c.permute(order)
            layout = f".permute({order})"
        c = c.clone()  # keeps the strides, but is no view
        p = self.enter(c, c.to("tpu"), Memory())
        self.say(f"{p.name} = {dtype} {tuple(c.shape)}{layout}")
        return p

    def both(self, text: str, f: Callable[[Callable[[Pair], torch.Tensor]], object]) -> object:
        """f on the tensors of either side; both results, or None when both raise alike."""
        self.say(text)
        try:
            c = f(lambda p: p.c)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as e:
            try:
                f(lambda p: p.t)
            except Exception as mine:
                if type(mine) is not type(e):
                    raise Mismatch(f"{text}: CPU raises {e!r}, tpu raises {mine!r}") from mine
                self.say(f"    both raise {type(e).__name__}: {str(e)[:80]}")
                return None
            raise Mismatch(f"{text}: only the CPU raises {e!r}") from e
        try:
            return c, f(lambda p: p.t)
        except Exception as mine:
            raise Mismatch(f"{text}: only tpu raises {type(mine).__name__}: {mine}") from mine

    # A view: text with {} for the tensor, function of the tensor.
    def view(self) -> None:
        p = self.pick()
        if p is None:
            return
        made = self.a_view(p)
        if made is None:
            return
        text, f = made
        result = self.both(text.format(p.name), lambda get: f(get(p)))
        if result is None:
            return
        c, t = result
        if isinstance(c, (tuple, list)):
            if len(c) != len(t):
                raise Mismatch(f"{text}: {len(t)} parts, CPU has {len(c)}")
            if not c:
                return
            keep = self.r.randrange(len(c))
            c, t = c[keep], t[keep]
            self.say(f"    part {keep}")
        if c.numel() > MAX_NUMEL:
            return
        memory = p.memory if same_storage(c, p.c) else Memory(p.memory.bits, p.memory.bools)
        q = self.enter(c, t, memory)
        self.say(f"    -> {q.name} {c.dtype} {tuple(c.shape)} {c.stride()} +{c.storage_offset()}")

    def a_view(self, p: Pair) -> tuple[str, Callable[[torch.Tensor], object]] | None:
        r, c = self.r, p.c
        rank = c.dim()
        kinds = [
            "detach",
            "alias",
            "unsqueeze",
            "reshape",
            "view",
            "as_strided",
            "expand",
            "data",
            "dtype",
        ]
        if c.is_complex():
            kinds += ["view_as_real", "real", "imag", "conj"] * 2
        elif rank and c.shape[-1] == 2 and c.dtype in (torch.float32, torch.float64):
            kinds += ["view_as_complex"] * 3
        if rank:
            kinds += [
                "slice",
                "slice",
                "select",
                "narrow",
                "unfold",
                "squeeze",
                "split",
                "chunk",
                "unbind",
                "transpose",
                "permute",
                "flatten",
                "unflatten",
                "as_strided",
                "expand",
            ]
        if rank > 1:
            kinds += ["diagonal", "transpose", "permute", "movedim", "mT", "slices"]
        kind = r.choice(kinds)
        d = r.randrange(rank) if rank else 0
        n = c.shape[d] if rank else 1
        d = d if r.random() < 0.7 else d - max(rank, 1)
        match kind:
            case "detach":
                return "{}.detach()", lambda x: x.detach()
            case "alias":
                return "aten.alias({})", torch.ops.aten.alias
            case "data":
                return "{}.data", lambda x: x.data
            case "unsqueeze":
                d = r.randint(-rank - 1, rank)
                return f"{{}}.unsqueeze({d})", lambda x: x.unsqueeze(d)
            case "squeeze":
                if r.random() < 0.3:
                    return "{}.squeeze()", lambda x: x.squeeze()
                return f"{{}}.squeeze({d})", lambda x: x.squeeze(d)
            case "slice":
                a, b, s = r.randint(-n, n), r.randint(-n, n + 2), r.choice([1, 1, 2, 2, 3])
                if r.random() < 0.6:
                    a, b = sorted((abs(a), abs(b)))
                return (
                    f"slice({{}}, {d}, {a}, {b}, {s})",
                    lambda x: torch.ops.aten.slice(x, d, a, b, s),
                )
            case "slices":
                key = tuple(
                    r.choice(
                        [
                            slice(None),
                            slice(1, None),
                            slice(None, None, 2),
                            slice(0, s // 2 + 1),
                            max(s - 1, 0),
                            None,
                            ...,
                        ]
                    )
                    for s in c.shape
                )
                if sum(k is ... for k in key) > 1:
                    return None
                return f"{{}}[{key}]", lambda x: x[key]
            case "select":
                i = r.randint(-n, max(n - 1, 0)) if r.random() < 0.97 else n
                return f"{{}}.select({d}, {i})", lambda x: x.select(d, i)
            case "narrow":
                a = r.randint(0, n)
                k = r.randint(0 if r.random() < 0.05 else min(1, n - a), n - a)
                return f"{{}}.narrow({d}, {a}, {k})", lambda x: x.narrow(d, a, k)
            case "unfold":
                k, s = r.randint(1, max(n, 1)), r.randint(1, 3)
                return f"{{}}.unfold({d}, {k}, {s})", lambda x: x.unfold(d, k, s)
            case "split":
                k = r.randint(1, max(n, 1))
                return f"{{}}.split({k}, {d})", lambda x: x.split(k, d)
            case "chunk":
                k = r.randint(1, 3)
                return f"{{}}.chunk({k}, {d})", lambda x: x.chunk(k, d)
            case "unbind":
                return f"{{}}.unbind({d})", lambda x: x.unbind(d)
            case "transpose":
                e = r.randrange(rank)
                return f"{{}}.transpose({d}, {e})", lambda x: x.transpose(d, e)
            case "permute":
                order = list(range(rank))
                r.shuffle(order)
                return f"{{}}.permute({order})", lambda x: x.permute(order)
            case "movedim":
                a, b = r.randrange(rank), r.randrange(rank)
                return f"{{}}.movedim({a}, {b})", lambda x: x.movedim(a, b)
            case "mT":
                return "{}.mT", lambda x: x.mT
            case "diagonal":
                a, b = r.sample(range(rank), 2)
                o = r.randint(-2, 2)
                return f"{{}}.diagonal({o}, {a}, {b})", lambda x: x.diagonal(o, a, b)
            case "flatten":
                a, b = sorted((r.randrange(rank), r.randrange(rank)))
                return f"{{}}.flatten({a}, {b})", lambda x: x.flatten(a, b)
            case "unflatten":
                k = r.choice([k for k in range(1, n + 1) if n % k == 0] or [1])
                return (
                    f"{{}}.unflatten({d}, ({k}, -1))",
                    lambda x: x.unflatten(d, (k, -1)) if n else x,
                )
            case "reshape" | "view":
                sizes = self.factors(c.numel())
                if kind == "reshape":
                    return f"{{}}.reshape({sizes})", lambda x: x.reshape(sizes)
                return f"{{}}.view({sizes})", lambda x: x.view(sizes)
            case "expand":
                sizes = [s if s != 1 else r.choice([1, 2, 3]) for s in c.shape]
                sizes = [r.choice([1, 2]) for _ in range(r.choice([0, 0, 1, 2]))] + sizes
                if torch.Size(sizes).numel() > MAX_NUMEL:
                    return None
                return f"{{}}.expand({sizes})", lambda x: x.expand(sizes)
            case "as_strided":
                return self.a_strided(c)
            case "dtype":
                return self.a_dtype(p)
            case "view_as_real":
                return "view_as_real({})", torch.view_as_real
            case "view_as_complex":
                return "view_as_complex({})", torch.view_as_complex
            case "real":
                return "{}.real", lambda x: x.real
            case "imag":
                return "{}.imag", lambda x: x.imag
            case "conj":
                return "{}.conj()", lambda x: x.conj()
        raise AssertionError(kind)

    def factors(self, n: int) -> list[int]:
        sizes = []
        rest = max(n, 1)
        for _ in range(self.r.randint(0, 3)):
            f = self.r.choice([k for k in range(1, rest + 1) if rest % k == 0])
            sizes.append(f)
            rest //= f
        sizes.append(rest if n else 0)
        self.r.shuffle(sizes)
        if self.r.random() < 0.3 and n:
            sizes[self.r.randrange(len(sizes))] = -1
        return sizes

    def a_strided(self, c: torch.Tensor) -> tuple[str, Callable[[torch.Tensor], object]] | None:
        r = self.r
        room = c.untyped_storage().nbytes() // c.element_size()
        if room == 0:
            return None
        sizes: list[int] = []
        strides: list[int] = []
        offset = r.randrange(room) if r.random() < 0.5 else 0
        left = room - 1 - offset
        for _ in range(r.randint(0, 4)):
            stride = r.choice([0, 1, 1, 2, 3, 4, 5, 6, 8, 12])
            most = 3 if stride == 0 else min(left // stride + 1, 8)
            size = r.randint(1, max(most, 1))
            left -= stride * (size - 1)
            sizes.append(size)
            strides.append(stride)
        if torch.Size(sizes).numel() > MAX_NUMEL:
            return None
        return (
            f"{{}}.as_strided({sizes}, {strides}, {offset})",
            lambda x: x.as_strided(sizes, strides, offset),
        )

    def a_dtype(self, p: Pair) -> tuple[str, Callable[[torch.Tensor], object]] | None:
        if p.c.is_conj():
            return None
        if p.c.dtype in COMPLEX:
            to = torch.float32 if p.c.dtype == torch.complex64 else torch.float64
        elif p.memory.bools:
            to = self.r.choice([torch.uint8, torch.int8])
        elif p.c.dtype in INTS and not p.memory.bits:
            to = self.r.choice(INTS)
        elif p.c.dtype == torch.bool:
            to = torch.uint8
            p.memory.bools = True
        else:
            to = self.r.choice([*INTS, *(MOVED if p.memory.bits else [])])
        if p.c.dtype.is_floating_point or p.memory.bits or p.c.dtype in MOVED:
            p.memory.bits = True
        return f"{{}}.view({to})", lambda x: x.view(to)

    # A write into a tensor that exists on both sides.
    def write(self) -> None:
        dst = self.pick(lambda p: p.c.numel() > 0 or self.r.random() < 0.1)
        if dst is None:
            return
        overlapping = overlaps_itself(dst.c)
        kinds = ["fill_", "zero_", "fill_tensor"]
        if not overlapping:
            kinds += ["copy_", "copy_", "copy_host", "setitem"]
            if dst.c.dtype not in MOVED:
                kinds += ["index_put_", "mask", "index_copy_", "index_fill_", "scatter_"]
            if dst.arithmetic:
                kinds += [
                    "add_",
                    "add_",
                    "add_scalar",
                    "mul_",
                    "out",
                    "data_add",
                    "iadd",
                    "index_add_",
                    "accumulate",
                ]
                if dst.c.dtype == torch.bool:
                    kinds = [k for k in kinds if k not in ("index_add_", "accumulate")] + [
                        "logical_or_"
                    ]
        elif self.r.random() < 0.2 and torch._debug_has_internal_overlap(dst.c) == 1:
            # Refused when the overlap is plain: stride 0.
            kinds = ["copy_", "add_scalar"] if dst.arithmetic else ["copy_"]
        kind = self.r.choice(kinds)
        made = self.a_write(dst, kind)
        if made is None:
            return
        text, f = made
        self.both(text, f)

    def source(
        self, dst: Pair, *, same_dtype: bool = False, arithmetic: bool = False
    ) -> Pair | None:
        """A live tensor or a fresh one that broadcasts to dst without undefined overlap."""

        def fits(p: Pair) -> bool:
            strict = same_dtype or dst.memory.bits or p.memory.bits
            strict = strict or p.c.dtype in MOVED or dst.c.dtype in MOVED
            if strict and p.c.dtype != dst.c.dtype:
                return False
            if arithmetic and not p.arithmetic:
                return False
            if p.c.is_complex() and not dst.c.is_complex():
                return False
            if p.c.dtype.is_floating_point and not (
                dst.c.dtype.is_floating_point or dst.c.is_complex()
            ):
                return False
            if p.memory.bits and not dst.memory.bits:
                return False
            if dst.memory.bools and p.c.dtype != torch.bool and not p.memory.bools:
                return False
            try:
                if torch.broadcast_shapes(p.c.shape, dst.c.shape) != dst.c.shape:
                    return False
            except RuntimeError:
                return False
            return not undefined(dst.c, p.c)

        p = self.pick(fits) if self.r.random() < 0.6 else None
        if p is not None:
            return p
        shape = list(dst.c.shape)
        for i in range(len(shape)):
            if self.r.random() < 0.25:
                shape[i] = 1
        if self.r.random() < 0.25:
            shape = shape[self.r.randint(0, len(shape)) :]
        c = self.values(tuple(shape), dst.c.dtype, dst.memory.bools)
        if self.r.random() < 0.3 and len(shape) > 1:
            c = c.mT.contiguous().mT
        p = Pair(c, c.to("tpu"), Memory(), f"{c.dtype}{tuple(shape)}{c.stride()}")
        return p

    def a_write(
        self, dst: Pair, kind: str
    ) -> tuple[str, Callable[[Callable[[Pair], torch.Tensor]], object]] | None:
        r, name, dtype = self.r, dst.name, dst.c.dtype
        v = self.number(dtype, dst.memory.bools)
        rank = dst.c.dim()
        match kind:
            case "fill_":
                return f"{name}.fill_({v})", lambda get: get(dst).fill_(v)
            case "zero_":
                return f"{name}.zero_()", lambda get: get(dst).zero_()
            case "fill_tensor":
                c = self.values((), dtype, dst.memory.bools)
                src = Pair(c, c.to("tpu"), Memory(), f"0-d {c.item()}")
                return f"{name}.fill_({src.name})", lambda get: get(dst).fill_(get(src))
            case "copy_":
                src = self.source(dst)
                return f"{name}.copy_({src.name})", lambda get: get(dst).copy_(get(src))
            case "copy_host":
                src = self.source(dst)
                host = src.c.clone()
                return f"{name}.copy_({src.name}.cpu())", lambda get: get(dst).copy_(host)
            case "add_" | "iadd" | "data_add" | "logical_or_":
                src = self.source(dst, arithmetic=True)
                if kind == "logical_or_":
                    return f"{name}.logical_or_({src.name})", lambda get: get(dst).logical_or_(
                        get(src)
                    )
                if kind == "data_add":
                    return f"{name}.data.add_({src.name})", lambda get: get(dst).data.add_(get(src))
                if kind == "iadd":

                    def iadd(get):
                        x = get(dst)
                        x -= get(src)

                    return f"{name} -= {src.name}", iadd
                alpha = 1 if dtype == torch.bool else r.choice([1, 2, -1])
                if dtype == torch.uint8:
                    alpha = abs(alpha)
                return (
                    f"{name}.add_({src.name}, alpha={alpha})",
                    lambda get: get(dst).add_(get(src), alpha=alpha),
                )
            case "add_scalar":
                return f"{name}.add_({v})", lambda get: get(dst).add_(v)
            case "mul_":
                k = r.choice([-1, 2, 0]) if dtype not in (torch.bool, torch.uint8) else 1
                return f"{name}.mul_({k})", lambda get: get(dst).mul_(k)
            case "out":
                a = self.source(dst, same_dtype=True, arithmetic=True)
                b = self.source(dst, same_dtype=True, arithmetic=True)
                op = r.choice(["add", "mul", "maximum"] if not dtype.is_complex else ["add"])
                if op == "mul" and dtype in (torch.float16, torch.bfloat16):
                    op = "maximum"
                try:
                    if torch.broadcast_shapes(a.c.shape, b.c.shape) != dst.c.shape:
                        return None
                except RuntimeError:
                    return None
                f = getattr(torch, op)
                return (
                    f"torch.{op}({a.name}, {b.name}, out={name})",
                    lambda get: f(get(a), get(b), out=get(dst)),
                )
            case "setitem":
                key = tuple(
                    r.choice(
                        [
                            slice(None),
                            slice(1, None),
                            slice(None, None, 2),
                            slice(0, s // 2 + 1),
                            max(s - 1, 0),
                        ]
                    )
                    for s in dst.c.shape[: r.randint(0, rank)]
                )

                def setitem(get):
                    get(dst)[key] = v

                return f"{name}[{key}] = {v}", setitem
        if rank == 0 or dst.c.numel() == 0:
            return None
        if kind == "mask":
            c = torch.tensor([r.random() < 0.5 for _ in range(dst.c.numel())]).reshape(dst.c.shape)
            m = Pair(c, c.to("tpu"), Memory(), "mask")
            if r.random() < 0.5:
                return f"{name}.masked_fill_(mask, {v})", lambda get: get(dst).masked_fill_(
                    get(m), v
                )

            def by_mask(get):
                get(dst)[get(m)] = v

            return f"{name}[mask] = {v}", by_mask
        d = r.randrange(rank)
        n = dst.c.shape[d]
        rows = r.sample(range(n), r.randint(1, n))
        if kind == "accumulate":
            rows += [rows[0]] * r.randint(0, 2)
        index = torch.tensor(rows)
        i = Pair(index, index.to("tpu"), Memory(), f"{rows}")
        shape = list(dst.c.shape)
        shape[d] = len(rows)
        c = self.values(tuple(shape), dtype, dst.memory.bools)
        src = Pair(c, c.to("tpu"), Memory(), f"values{tuple(shape)}")
        match kind:
            case "index_put_" | "accumulate":
                add = kind == "accumulate"
                return (
                    f"index_put_({name}, {d} x None, {i.name}, {src.name}, accumulate={add})",
                    lambda get: torch.ops.aten.index_put_(
                        get(dst), [None] * d + [get(i)], get(src), add
                    ),
                )
            case "index_copy_":
                return (
                    f"{name}.index_copy_({d}, {i.name}, {src.name})",
                    lambda get: get(dst).index_copy_(d, get(i), get(src)),
                )
            case "index_fill_":
                return (
                    f"{name}.index_fill_({d}, {i.name}, {v})",
                    lambda get: get(dst).index_fill_(d, get(i), v),
                )
            case "index_add_":
                return (
                    f"{name}.index_add_({d}, {i.name}, {src.name})",
                    lambda get: get(dst).index_add_(d, get(i), get(src)),
                )
            case "scatter_":
                where = (
                    torch.tensor(rows)
                    .reshape([-1 if k == d else 1 for k in range(rank)])
                    .expand(shape)
                )
                w = Pair(where, where.to("tpu"), Memory(), f"{rows}")
                return (
                    f"{name}.scatter_({d}, {w.name}, {src.name})",
                    lambda get: get(dst).scatter_(d, get(w), get(src)),
                )
        raise AssertionError(kind)

    def compute(self) -> None:
        """A result in memory of its own."""
        p = self.pick()
        if p is None:
            return
        kinds = ["clone", "contiguous", "repeat"]
        if p.arithmetic:
            kinds += ["add", "mul", "cat"]
        kind = self.r.choice(kinds)
        q = p
        if kind in ("add", "mul"):
            q = (
                self.pick(
                    lambda o: o.arithmetic and o.c.dtype == p.c.dtype and o.c.shape == p.c.shape
                )
                or p
            )
        half = p.c.dtype in (torch.float16, torch.bfloat16)
        f: dict[str, Callable[[Callable[[Pair], torch.Tensor]], torch.Tensor]] = {
            "clone": lambda get: get(p).clone(),
            "contiguous": lambda get: get(p).contiguous(),
            "repeat": lambda get: get(p).repeat(*[1] * p.c.dim()),
            "add": lambda get: get(p) + get(q),
            "mul": lambda get: get(p) * (2 if half else get(q)),
            "cat": lambda get: torch.cat([get(p), get(p)]),
        }
        result = self.both(f"{kind}({p.name}, {q.name})", f[kind])
        if result is None:
            return
        c, t = result
        if c.numel() > MAX_NUMEL:
            return
        memory = p.memory if same_storage(c, p.c) else Memory(p.memory.bits, p.memory.bools)
        x = self.enter(c, t, memory)
        self.say(f"    -> {x.name} {c.dtype} {tuple(c.shape)} {c.stride()}")

    def look(self) -> None:
        p = self.pick()
        if p is None:
            return
        self.say(f"read {p.name}")
        self.compare_values(p, p.t.cpu())

    # ---- Comparison.

    def compare_values(self, p: Pair, got: torch.Tensor) -> None:
        want = p.c
        if got.dtype != want.dtype or got.shape != want.shape:
            raise Mismatch(
                f"{p.name}: {got.dtype} {tuple(got.shape)}, CPU {want.dtype} {tuple(want.shape)}"
            )
        a, b = (
            x.resolve_conj().clone(memory_format=torch.contiguous_format).reshape(-1)
            for x in (got, want)
        )
        if p.memory.bits or want.dtype in MOVED:
            equal = torch.equal(a.view(torch.uint8), b.view(torch.uint8))
        else:
            equal = (
                torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
                if a.is_floating_point() or a.is_complex()
                else torch.equal(a, b)
            )
        if not equal:
            raise Mismatch(f"{p.name} differs:\n  tpu {got.tolist()}\n  CPU {want.tolist()}")

    def compare(self) -> None:
        self.say("compare")
        for p in self.live:
            c, t = p.c, p.t
            for what, f in FACTS.items():
                a, b = f(t), f(c)
                if a != b:
                    raise Mismatch(f"{p.name}: {what} is {a}, on the CPU {b}")
        for p in self.live:
            for q in self.live:
                c = same_storage(p.c, q.c)
                if c != same_storage(p.t, q.t):
                    raise Mismatch(
                        f"{p.name} and {q.name}: shared storage is {not c}, on the CPU {c}"
                    )
                if (p.c._base is q.c) != (p.t._base is q.t):
                    raise Mismatch(
                        f"{p.name}._base is {q.name}: {p.t._base is q.t}, "
                        f"on the CPU {p.c._base is q.c}"
                    )
                if c and p.c.numel() and q.c.numel():
                    a, b = p.t.data_ptr() - q.t.data_ptr(), p.c.data_ptr() - q.c.data_ptr()
                    if a != b:
                        raise Mismatch(f"{p.name} and {q.name}: {a} bytes apart, on the CPU {b}")
        # Recorded first and then read: one program in fused mode.
        copies = [p.t.clone() for p in self.live]
        for p, t in zip(self.live, copies, strict=True):
            self.compare_values(p, t.cpu())
        # And what the storages hold as a whole.
        for p in self.live:
            if p.c.untyped_storage().nbytes() and not p.c.is_conj() and p.c.dtype != torch.bool:
                n = p.c.untyped_storage().nbytes() // p.c.element_size()
                self.compare_values(
                    Pair(p.c.as_strided([n], [1], 0), p.t, p.memory, p.name + " storage"),
                    p.t.as_strided([n], [1], 0).cpu(),
                )

    def run(self) -> None:
        for _ in range(self.r.randint(1, 3)):
            self.base()
        for _ in range(self.r.randint(4, 20)):
            step = self.r.choices(
                [self.view, self.write, self.compute, self.look, self.base, self.compare],
                [50, 35, 6, 4, 3, 2],
            )[0]
            step()
        self.compare()


FACTS: dict[str, Callable[[torch.Tensor], object]] = {
    "dtype": lambda x: x.dtype,
    "sizes": lambda x: tuple(x.shape),
    "strides": lambda x: x.stride(),
    "offset": lambda x: x.storage_offset(),
    "_is_view": lambda x: x._is_view(),
    "version": lambda x: x._version,
    "contiguity": lambda x: x.is_contiguous(),
    "conjugation": lambda x: x.is_conj(),
    "storage size": lambda x: x.untyped_storage().nbytes(),
}


def check(seed: int, mode: str, verbose: bool = False) -> None:
    program = Program(seed, verbose)
    try:
        with set_eager_mode(MODES[mode]):
            program.run()
    except Exception as e:
        e.add_note(f"seed {seed}, mode {mode}\n" + "\n".join(program.log))
        raise


SEEDS = 50


@pytest.mark.parametrize("mode_name", MODES)
@pytest.mark.parametrize("part", range(5))
def test_views_and_writes(part, mode_name):
    torch_seeds = range(part * SEEDS // 5, (part + 1) * SEEDS // 5)
    for seed in torch_seeds:
        check(seed, mode_name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10000)
    parser.add_argument("--mode", choices=MODES, default="fused")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--keep-going", type=int, default=20, help="stop after so many failures")
    args = parser.parse_args()
    import torch_tpu

    torch_tpu.set_fallback("error")
    started, failed = time.time(), []
    for seed in range(args.first, args.first + args.seeds):
        try:
            check(seed, args.mode, args.verbose)
        except Exception as e:
            failed.append(seed)
            print(f"--- seed {seed} failed", flush=True)
            if args.verbose:
                traceback.print_exc()
            else:
                print(f"{type(e).__name__}: {str(e)[:1500]}", flush=True)
            if len(failed) >= args.keep_going:
                break
        done = seed - args.first + 1
        if done % 500 == 0:
            print(f"{done} seeds, {len(failed)} failed, {time.time() - started:.0f} s", flush=True)
    counts = torch_tpu.debug.counters()
    print(
        f"mode {args.mode}: seeds {args.first} to {seed}, {len(failed)} failed {failed}, "
        f"{time.time() - started:.0f} s, {counts['nodes']} ops, {counts['executes']} launches, "
        f"{counts['compiles']} programs"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
