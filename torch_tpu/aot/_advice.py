"""What an engineer who knows the chip would say about a program."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from torch_tpu.aot import _hlo
from torch_tpu.aot._table import anywhere, size_text, where

if TYPE_CHECKING:
    from torch_tpu.aot._report import Report
    from torch_tpu.aot._trace import Program

# Below these shares of a program nothing is said.
_CYCLES, _FLOPS, _MEMORY = 0.03, 0.05, 0.02
_ELEMENTS = 1 << 12  # of an array whose type is worth a word

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


_NEEDED = (
    r"Used ([\d.]+)([KMGT]?)i?B? of",
    r"\(([\d.]+)([KMGT]?)i?B?\) exceeds available",
    r"requires? ([\d.]+)([KMGT]?)i?B?\b",
)


def needed_bytes(failure: str) -> int:
    """What a program that does not fit would need, from the compiler's text; 0: unknown."""
    for pattern in _NEEDED:
        if found := re.search(pattern, failure):
            return int(float(found[1]) * _UNITS[found[2]])
    return 0


def warnings(
    r: Report,
    program: Program,
    module: _hlo.Module,
    products: list[tuple[_hlo.Product, int]],
    buffers: list[_hlo.Buffer],
) -> list[str]:
    """One text each, the dearest first within its kind."""
    out = []
    if not r.fits:
        short = r.peak_bytes - r.capacity_bytes
        out.append(
            f"does not fit: {size_text(r.peak_bytes)} are needed, the device has "
            f"{size_text(r.capacity_bytes)} ({size_text(max(short, 0))} too much); shard it over "
            "more devices, use bfloat16 or a smaller batch, or recompute activations"
        )
    out += _precision(r, products)
    out += _shapes(r, products)
    out += _wide_types(r)
    out += _padding(r, program, buffers)
    out += _movement(r, module)
    out += _transfers(r, module, program)
    out += _recompiles(program)
    return out


def _precision(r: Report, products: list[tuple[_hlo.Product, int]]) -> list[str]:
    slow = {p: f for p, f in r.mxu_passes.items() if p > 1}
    total = sum(p * f for p, f in r.mxu_passes.items())
    if not slow or not total:
        return []
    costly = max(
        (p for p in products if p[0].passes > 1), key=lambda p: p[0].flops * p[0].passes * p[1]
    )[0]
    passes = max(slow)
    ones = sum(r.mxu_passes.values())
    text = (
        f"{sum(slow.values()) / ones:.0%} of the matrix work is float32 in {passes} passes of "
        f"bfloat16, most at {where(costly.op_name)}; "
    )
    if passes == 6:
        text += f"precision='high' would do {_with(r, 3) / total:.2f} of the passes, "
    text += f"'medium' {ones / total:.2f}"
    return [text]


def _with(r: Report, most: int) -> float:
    return sum(min(p, most) * f for p, f in r.mxu_passes.items())


def _shapes(r: Report, products: list[tuple[_hlo.Product, int]]) -> list[str]:
    total = sum(p.flops * times for p, times in products)
    wasted: dict[str, float] = defaultdict(float)
    for p, times in products:
        share = p.flops * times / total if total else 0.0
        for what, n in (("contracted", p.contracted), ("columns", p.columns)):
            used = n / (-(-n // r.chip.mxu) * r.chip.mxu) if n else 1.0
            if used <= 0.75:
                wasted[
                    f"{anywhere(p.op_name)}: {what} size {n} fills {used:.0%} "
                    f"of the {r.chip.mxu}-wide matrix unit"
                ] += share
    rows = sorted(wasted.items(), key=lambda row: -row[1])
    return [f"{text} ({share:.0%} of the matrix work)" for text, share in rows if share >= _FLOPS][
        :5
    ]


def _wide_types(r: Report) -> list[str]:
    out = []
    names: dict[str, set[str]] = defaultdict(set)
    for line in r.stablehlo.splitlines():
        # Arithmetic on arrays: no constants, no conversions, which lead away from the type too.
        found = re.search(r'"stablehlo\.(\w+)".*-> tensor<((?:\d+x)+)(f64|i64|ui64)>', line)
        if found is None or math.prod(map(int, found[2].split("x")[:-1])) < _ELEMENTS:
            continue
        if found[1] not in ("constant", "convert", "iota", "broadcast_in_dim", "reshape"):
            place = re.search(r'loc\("([^"]*)"\)', line)
            names[found[3]].add(anywhere(place[1]) if place else "")
    if names["f64"]:
        out.append(
            f"float64 arithmetic is emulated, many times slower than float32: {_some(names['f64'])}"
        )
    wide = names["i64"] | names["ui64"]
    if wide:
        out.append(f"int64 arithmetic takes pairs of 32-bit words: {_some(wide)}")
    return out


def _some(texts: set[str]) -> str:
    listed = sorted(t for t in texts if t)
    return "; ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")


def _padding(r: Report, program: Program, buffers: list[_hlo.Buffer]) -> list[str]:
    rows = []
    for b in buffers:
        shapes = _hlo.shapes_of(b.shape)
        plain = sum(s.size_bytes for s in shapes)
        if plain and b.size_bytes > 1.25 * plain and b.size_bytes > _MEMORY * r.peak_bytes:
            name = program.arguments[b.parameter].name if b.parameter >= 0 else b.name
            rows.append((b.size_bytes - plain, name, b.shape.split("{")[0], plain, b.size_bytes))
    return [
        f"padding: {name} {shape} takes {size_text(padded)} for {size_text(plain)}; its last two "
        "sizes are rounded up to the tile (8 or 16 by 128)"
        for _, name, shape, plain, padded in sorted(rows, reverse=True)[:5]
    ]


def _movement(r: Report, module: _hlo.Module) -> list[str]:
    cost: dict[str, dict[str, int]] = {"layout": defaultdict(int), "index": defaultdict(int)}
    for i, times, place in module.scheduled():
        opcodes = {inner.opcode for inner, _ in module.inside(i, place)}
        if i.opcode in ("copy", "transpose") or (i.opcode == "fusion" and opcodes <= _MOVES):
            cost["layout"][where(i.op_name)] += i.cycles * times
        elif opcodes & {"gather", "scatter"}:
            cost["index"][where(i.op_name)] += i.cycles * times
    out = []
    texts = {
        "layout": "transposes and changes of layout",
        "index": "gathers and scatters",
    }
    for kind, rows in cost.items():
        total = sum(rows.values())
        if r.estimated_cycles and total > _CYCLES * r.estimated_cycles:
            worst = [w for w in sorted(rows, key=lambda k: -rows[k]) if w][:3]
            out.append(
                f"{texts[kind]} take {total / r.estimated_cycles:.0%} of the cycles"
                + (f": {'; '.join(worst)}" if worst else "")
            )
    return out


_MOVES = {"fusion", "parameter", "copy", "transpose", "bitcast", "reshape", "tuple"}


def _transfers(r: Report, module: _hlo.Module, program: Program) -> list[str]:
    out = []
    for i, _, _ in module.scheduled():
        if i.opcode in ("infeed", "outfeed", "send", "recv"):
            out.append(f"the program waits for the host ({i.opcode}) at {where(i.op_name)}")
    constants = [a for a in program.arguments if a.kind == "constant"]
    if constants:
        total = sum(a.size_bytes for a in constants)
        out.append(
            f"{len(constants)} tensor(s) of {size_text(total)} are made on the host in the traced "
            "code and are arguments of the program; make them on the device"
        )
    return out


def _recompiles(program: Program) -> list[str]:
    odd = [
        f"{a.name} {a.shape}"
        for a in program.arguments
        if a.kind == "input" and any(n > 8 and n % 8 for n in a.shape)
    ]
    if not odd:
        return []
    return [
        f"sizes that are no multiple of 8: {', '.join(odd[:3])}; if they change from call to call, "
        "each is a compile: pad to a few sizes"
    ]
