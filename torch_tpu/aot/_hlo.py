"""What the compiler's dump says: instructions in the order in which they run, cycles, buffers."""

from __future__ import annotations

import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

_BITS = {
    "pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16,
    "s32": 32, "u32": 32, "s64": 64, "u64": 64, "f8e5m2": 8, "f8e4m3fn": 8, "f8e4m3b11fnuz": 8,
    "f8e5m2fnuz": 8, "f8e4m3fnuz": 8, "f8e8m0fnu": 8, "f4e2m1fn": 4, "f16": 16, "bf16": 16,
    "f32": 32, "f64": 64, "c64": 64, "c128": 128,
}  # fmt: skip
_SHAPE = re.compile(r"\b([a-z][a-z0-9]*)\[([0-9,<=]*)\](?:\{([^}]*)\})?")
_HEAD = re.compile(r"^\s+(ROOT )?%?(\S+) = ")
_COMPUTATION = re.compile(r"^(ENTRY )?%?(\S+) \(.*\{$")
_NAME = re.compile(r"%([\w.\-]+)")
_OPERAND = re.compile(r"%([\w.\-]+)(?:#(\d+))?")  # %while.1#2 is an element of a tuple


@dataclass(frozen=True)
class Shape:
    """An array type with its layout; tuples are lists of these."""

    dtype: str
    dims: tuple[int, ...]
    minor_to_major: tuple[int, ...] = ()
    tile: tuple[int, ...] = ()
    memory_space: int = 0

    @property
    def numel(self) -> int:
        """Elements."""
        return math.prod(self.dims)

    @property
    def size_bytes(self) -> int:
        """Bytes without padding."""
        return (self.numel * _BITS.get(self.dtype, 32) + 7) // 8

    @property
    def padded_bytes(self) -> int:
        """Bytes as laid out: minor dims rounded up to the first tile."""
        if not self.tile or not self.dims:
            return self.size_bytes
        order = self.minor_to_major or tuple(reversed(range(len(self.dims))))
        sizes = [self.dims[d] for d in order]  # minor first
        for i, t in enumerate(reversed(self.tile)):
            if i < len(sizes):
                sizes[i] = -(-sizes[i] // t) * t
        return (math.prod(sizes) * _BITS.get(self.dtype, 32) + 7) // 8


@functools.lru_cache(maxsize=100_000)
def shapes_of(text: str) -> tuple[Shape, ...]:
    """All array types in a type's text."""
    found = []
    for dtype, dims, layout in _SHAPE.findall(text):
        if dtype not in _BITS:
            continue
        order, _, rest = layout.partition(":")
        tile = re.search(r"T\(([0-9,]+)\)", rest)
        space = re.search(r"S\((\d+)\)", rest)
        found.append(
            Shape(
                dtype,
                tuple(int(d.lstrip("<=")) for d in dims.split(",") if d),
                tuple(int(d) for d in order.split(",") if d.isdigit()),
                tuple(int(d) for d in tile[1].split(",")) if tile else (),
                int(space[1]) if space else 0,
            )
        )
    return tuple(found)


@dataclass
class Instruction:
    """One instruction of the optimized program."""

    name: str
    opcode: str
    type: str
    operands: list[str]
    rest: str  # attributes, metadata, backend_config
    number: int | None = None  # of a parameter; the value of a whole number that is a constant
    elements: list[int] = field(default_factory=list)  # one an operand: of its tuple, or -1

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Its result's arrays."""
        return shapes_of(self.type)

    @property
    def op_name(self) -> str:
        """What the traced program called it: path|op|line."""
        found = re.search(r'op_name="([^"]*)"', self.rest)
        return found[1] if found else ""

    @property
    def cycles(self) -> int:
        """The compiler's estimate; 0 where it gives none."""
        found = re.search(r'"estimated_cycles":"(\d+)"', self.rest)
        return int(found[1]) if found else 0

    def called(self, key: str) -> str:
        """The computation of an attribute such as calls, body, condition."""
        found = re.search(rf"\b{key}=%?([\w.\-]+)", self.rest)
        return found[1] if found else ""


@dataclass
class Module:
    """Computations by name, in order of execution."""

    computations: dict[str, list[Instruction]] = field(default_factory=dict)
    entry: str = ""
    _types: dict[str, dict[str, str]] = field(default_factory=dict)

    def scheduled(self) -> Iterator[tuple[Instruction, int, str]]:
        """Instructions that run on their own, how often, and in which computation.

        Bodies of loops count by their trip count where it can be told, else once.
        """
        yield from self._walk(self.entry, 1)

    def _walk(self, name: str, times: int) -> Iterator[tuple[Instruction, int, str]]:
        for i in self.computations.get(name, ()):
            yield i, times, name
            if i.opcode == "while":
                count = self.trips(i, name) or 1
                yield from self._walk(i.called("body"), times * count)
                yield from self._walk(i.called("condition"), times * count)
            elif i.opcode == "call":
                yield from self._walk(i.called("to_apply"), times)
            elif i.opcode == "conditional":
                found = re.search(r"branch_computations=\{([^}]*)\}", i.rest)
                names = _NAME.findall(found[1]) if found else []
                names += [
                    n for k in ("true_computation", "false_computation") if (n := i.called(k))
                ]
                # One of them runs: the dearest stands for all.
                costs = {n: sum(x.cycles * t for x, t, _ in self._walk(n, 1)) for n in names}
                if costs:
                    yield from self._walk(max(costs, key=lambda n: costs[n]), times)

    def inside(self, i: Instruction, where: str) -> Iterator[tuple[Instruction, str]]:
        """The instruction and, for a fusion or an asynchronous call, what is in it, each with its
        computation.
        """
        yield i, where
        called = i.called("calls")
        for inner in self.computations.get(called, ()):
            yield from self.inside(inner, called)

    def trips(self, loop: Instruction, where: str) -> int:
        """How often a loop runs that counts from a constant to a constant; 0: unknown."""
        known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.rest)
        if known:
            return int(known[1])
        condition = self.computations.get(loop.called("condition"), [])
        body = self.computations.get(loop.called("body"), [])
        if not condition or not body or condition[-1].opcode != "compare":
            return 0
        test = condition[-1]
        if "direction=LT" not in test.rest or len(test.operands) != 2:
            return 0
        at = test.elements[0]
        if at < 0:
            source = _find(condition, test.operands[0])
            index = re.search(r"\bindex=(\d+)", source.rest) if source else None
            at = int(index[1]) if index else -1
        bound = _constant(condition, test.operands[1])
        start_tuple = _find(self.computations[where], loop.operands[0])
        if at < 0 or bound is None or start_tuple is None or at >= len(start_tuple.operands):
            return 0
        start = _constant(self.computations[where], start_tuple.operands[at])
        step_of = _find(body, body[-1].operands[at]) if body[-1].opcode == "tuple" else None
        step = _constant(body, step_of.operands[1]) if step_of and step_of.opcode == "add" else None
        if start is None or not step:
            return 0
        return max(0, -(-(bound - start) // step))

    def operand_shapes(self, i: Instruction, where: str) -> Iterator[tuple[int, Shape]]:
        """Arrays that an instruction reads, with the number of the operand."""
        types = self.types(where)
        for n, name in enumerate(i.operands):
            shapes = shapes_of(types.get(name, ""))
            element = i.elements[n]
            for s in shapes if element < 0 else shapes[element : element + 1]:
                yield n, s

    def types(self, computation: str) -> dict[str, str]:
        """Types of a computation's instructions by name."""
        if computation not in self._types:
            self._types[computation] = {i.name: i.type for i in self.computations[computation]}
        return self._types[computation]


def _find(computation: list[Instruction], name: str) -> Instruction | None:
    return next((i for i in computation if i.name == name), None)


def _constant(computation: list[Instruction], name: str) -> int | None:
    """The value of an instruction that is a constant or a copy of one."""
    i = _find(computation, name)
    while i is not None and i.opcode in ("copy", "bitcast", "convert") and i.operands:
        i = _find(computation, i.operands[0])
    return i.number if i is not None and i.opcode == "constant" else None


def parse(text: str) -> Module:
    """The module of an HLO text."""
    module = Module()
    current: list[Instruction] | None = None
    for line in text.splitlines():
        if line.startswith(("  ", "\t")) and current is not None:
            if (instruction := _instruction(line)) is not None:
                current.append(instruction)
        elif (found := _COMPUTATION.match(line)) is not None:
            current = module.computations.setdefault(found[2], [])
            if found[1]:
                module.entry = found[2]
        elif line.startswith("}"):
            current = None
    return module


def _instruction(line: str) -> Instruction | None:
    head = _HEAD.match(line)
    if head is None:
        return None
    at = head.end()
    end = _close(line, at) + 1 if line[at] == "(" else line.find(" ", at)
    type_text = line[at:end]
    open_at = line.find("(", end + 1)
    if open_at < 0:
        return None
    opcode = line[end + 1 : open_at].strip()
    close = _close(line, open_at)
    inner = line[open_at + 1 : close]
    number = None
    if opcode in ("parameter", "constant") and inner.lstrip("-").isdigit():
        number = int(inner)
    found = _OPERAND.findall(inner)
    return Instruction(
        head[2], opcode, type_text, [name for name, _ in found], line[close + 1 :], number,
        [int(e) if e else -1 for _, e in found],
    )  # fmt: skip


def _close(line: str, at: int) -> int:
    depth = 0
    for i in range(at, len(line)):
        if line[i] == "(":
            depth += 1
        elif line[i] == ")":
            depth -= 1
            if depth == 0:
                return i
    return len(line)


# -- matrix products -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    """A dot or convolution: its work, the types of its operands and how exactly it is computed."""

    flops: float
    dtype: str
    passes: int  # over the matrix unit: 1, 3 or 6
    op_name: str
    shape: tuple[int, ...]
    columns: int  # of a plain matrix product; 0: batches or a window stand between

    @property
    def contracted(self) -> int:
        """Elements that are summed into one result."""
        return round(self.flops / 2 / max(math.prod(self.shape), 1))


_PASSES = {"default": 1, "high": 3, "highest": 6}


def dearest_product(module: Module, i: Instruction, where: str) -> str:
    """The name of the largest matrix product in an instruction; empty where there is none."""
    found = [
        p
        for inner, computation in module.inside(i, where)
        if inner.opcode in ("convolution", "dot")
        and (p := _product(inner, module.types(computation))) is not None
    ]
    return max(found, key=lambda p: p.flops).op_name if found else ""


def products(module: Module) -> Iterator[tuple[Product, int]]:
    """Every matrix product with how often it runs."""
    for i, times, where in module.scheduled():
        for inner, computation in module.inside(i, where):
            if inner.opcode not in ("convolution", "dot"):
                continue
            if (product := _product(inner, module.types(computation))) is not None:
                yield product, times


def _product(i: Instruction, types: dict[str, str]) -> Product | None:
    if len(i.operands) < 2 or any(name not in types for name in i.operands[:2]):
        return None
    left, right = (
        shapes_of(types[name])[max(element, 0)]
        for name, element in zip(i.operands[:2], i.elements[:2], strict=True)
    )
    out = i.shapes[0]
    if i.opcode == "dot":
        found = re.search(r"lhs_contracting_dims=\{([0-9,]*)\}", i.rest)
        contracted = math.prod(left.dims[int(d)] for d in found[1].split(",") if d) if found else 1
        flops = 2.0 * out.numel * contracted
    else:
        flops = _convolution_flops(i.rest, left, right, out)
    precision = re.search(r"operand_precision=\{(\w+)", i.rest)
    wide = left.dtype in ("f32", "f64") or right.dtype in ("f32", "f64")
    passes = _PASSES.get(precision[1] if precision else "default", 1) if wide else 1
    labels = _LABELS.search(i.rest)
    plain = labels is not None and len(labels[3]) == 2
    columns = out.dims[labels[3].index("f")] if labels and plain else 0
    return Product(flops, left.dtype, passes, i.op_name, out.dims, columns)


_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")


def _convolution_flops(text: str, left: Shape, right: Shape, out: Shape) -> float:
    """Two for each multiplication of two elements that are there: padding and holes are not.

    The TPU's compiler writes a batched dot as a convolution whose spatial dims are the batch.
    """
    labels = _LABELS.search(text)
    if labels is None:
        return 0.0
    lhs, rhs, result = labels.groups()
    flops = 2.0 * out.dims[result.index("b")] * out.dims[result.index("f")]
    flops *= right.dims[rhs.index("i")]
    spatial = sum(c.isdigit() for c in lhs)
    window = re.search(r"window=\{([^}]*)\}", text)
    fields = dict(f.split("=") for f in window[1].split()) if window else {}

    def field_of(name: str, d: int, default: str) -> str:
        return fields[name].split("x")[d] if name in fields else default

    for d in range(spatial):
        n = left.dims[lhs.index(str(d))]
        size, stride = int(field_of("size", d, "1")), int(field_of("stride", d, "1"))
        low = int(field_of("pad", d, "0_0").split("_")[0])
        holes, step = int(field_of("lhs_dilate", d, "1")), int(field_of("rhs_dilate", d, "1"))
        reach = (n - 1) * holes + 1
        steps = range(0, out.dims[result.index(str(d))] * stride, stride)
        count = 0
        for k in range(size):
            shift = k * step - low
            if holes == 1:
                # o with 0 <= o * stride + shift < reach
                first, last = max(0, -(shift // stride)), (reach - 1 - shift) // stride
                count += max(0, min(last, len(steps) - 1) - first + 1)
            else:
                count += sum(0 <= o + shift < reach and (o + shift) % holes == 0 for o in steps)
        flops *= count
    return flops


# -- traffic ---------------------------------------------------------------------------------------

_FREE = {
    "parameter", "constant", "bitcast", "tuple", "get-tuple-element", "while", "call",
    "conditional", "copy-done", "async-done", "after-all", "partition-id", "replica-id",
}  # fmt: skip
_READS_PART = {"gather", "dynamic-slice", "slice", "dynamic-update-slice", "scatter"}


def traffic(module: Module, everywhere: bool = False) -> float:
    """Bytes that instructions read from and write to the main memory; `everywhere`: the on-chip
    memory, too.
    """
    total = 0.0
    for i, times, where in module.scheduled():
        if i.opcode in _FREE:
            continue
        if i.opcode in ("copy-start", "async-start"):
            # Result: (destination, source, context).
            sides = [s for s in i.shapes if s.size_bytes > 4][:2]
            least = min((s.padded_bytes for s in sides), default=0)
            moved = least * sum(everywhere or s.memory_space == 0 for s in sides)
        else:
            partial = _partial_reads(module, i)
            moved = sum(
                min(s.padded_bytes, partial.get(n, s.padded_bytes))
                for n, s in module.operand_shapes(i, where)
                if everywhere or s.memory_space == 0
            )
            written = sum(s.padded_bytes for s in i.shapes if everywhere or s.memory_space == 0)
            updates = _updates(module, i)
            moved += min(written, updates) if updates else written
        total += times * moved
    return total


def _updates(module: Module, i: Instruction) -> int:
    """Bytes that a fusion ending in a dynamic-update-slice writes into its operand; else 0."""
    body = module.computations.get(i.called("calls"), ()) if i.opcode == "fusion" else ()
    if not body or body[-1].opcode != "dynamic-update-slice":
        return 0
    types = {x.name: x.type for x in body}
    return sum(s.padded_bytes for s in shapes_of(types.get(body[-1].operands[1], "")))


def _partial_reads(module: Module, i: Instruction) -> dict[int, int]:
    """Operands of which only a part is read or written, with the bytes of the part."""
    body = module.computations.get(i.called("calls"), ()) if i.opcode == "fusion" else ()
    number = {x.name: x.number or 0 for x in body if x.opcode == "parameter"}
    users: dict[str, list[Instruction]] = defaultdict(list)
    for inner in body:
        for name in inner.operands:
            users[name].append(inner)
    out = {}
    for name, n in number.items():
        uses = users[name]
        if uses and all(u.opcode in _READS_PART and u.operands[0] == name for u in uses):
            types = {x.name: x.type for x in body}
            out[n] = sum(
                sum(s.padded_bytes for s in shapes_of(types.get(u.operands[1], "")))
                if u.opcode in ("dynamic-update-slice", "scatter")
                else sum(s.padded_bytes for s in u.shapes)
                for u in uses
            )
    return out


# -- memory ----------------------------------------------------------------------------------------


@dataclass
class Buffer:
    """A stretch of the device's memory and when something lives in it."""

    name: str  # of the value that is in it first
    size_bytes: int
    parameter: int = -1
    output: bool = False
    first: int = 0
    last: int = 0
    shape: str = ""


_ALLOCATION = re.compile(r"^allocation \d+: size (\d+)(.*)$")
_VALUE = re.compile(r"^ value: <\d+ (\S+?)(\{[0-9,]*\})? @\d+> \(size=(\d+),offset=(\d+)\): (.*)$")
_RANGE = re.compile(r"^\s+(\S+?)(\{[0-9,]*\}):(\d+)-(\d+)$")


def buffers(assignment: str, live: str) -> list[Buffer]:
    """Buffers of the main memory: arguments and outputs for the whole run, temporaries while used.

    Values that take turns in one place are one buffer each.
    """
    ranges: dict[str, tuple[int, int]] = {}
    for line in live.splitlines():
        if (found := _RANGE.match(line)) is not None:
            ranges[found[1] + found[2]] = (int(found[3]), int(found[4]))
    end = max((last for _, last in ranges.values()), default=0)
    result: list[Buffer] = []
    about = ""
    places: dict[tuple[int, int], Buffer] = {}
    for line in assignment.splitlines():
        if (head := _ALLOCATION.match(line)) is not None:
            about, size = head[2], int(head[1])
            places = {}
            skipped = "color" in about or "thread-local" in about
            whole = "parameter" in about or "live-out" in about or "constant" in about
            if not skipped and whole:
                number = re.search(r"parameter (\d+)", about)
                shape = re.search(r"shape (?:is )?\|([^|]*)\|", about)
                result.append(
                    Buffer(
                        "", size, int(number[1]) if number else -1, "live-out" in about, 0, end,
                        shape[1] if shape else "",
                    )
                )  # fmt: skip
                places[(0, size)] = result[-1]
        elif (value := _VALUE.match(line)) is not None:
            if "color" in about or "thread-local" in about:
                continue
            name, index = value[1], value[2] or "{}"
            size, offset = int(value[3]), int(value[4])
            if "preallocated-temp" in about:
                first, last = ranges.get(name + index, (0, end))
                known = places.get((offset, size))
                if known is not None and first <= known.last + 1 and last >= known.first - 1:
                    # The next value in the same place, which takes it over.
                    known.first, known.last = min(known.first, first), max(known.last, last)
                else:
                    places[(offset, size)] = Buffer(name, size, -1, False, first, last, value[5])
                    result.append(places[(offset, size)])
            elif result and not result[-1].name:
                result[-1].name = name
                result[-1].shape = value[5]
    return result


def timeline(found: list[Buffer]) -> list[tuple[int, int]]:
    """(step, bytes in use) wherever that changes."""
    change: dict[int, int] = defaultdict(int)
    for b in found:
        change[b.first] += b.size_bytes
        change[b.last + 1] -= b.size_bytes
    total, out = 0, []
    for step in sorted(change):
        total += change[step]
        out.append((step, total))
    return out[:-1]
