"""A report as text."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_tpu.aot._report import Report


def size_text(n: float) -> str:
    """1.5 GiB"""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(n) < 1024 or unit == "TiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    raise AssertionError


def count_text(n: float) -> str:
    """1.23 T"""
    for unit in ("", "k", "M", "G", "T", "P"):
        if abs(n) < 1000 or unit == "P":
            return f"{n:.0f}" if unit == "" else f"{n:.2f} {unit}"
        n /= 1000
    raise AssertionError


def time_text(seconds: float) -> str:
    """12.3 ms"""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def where(op_name: str) -> str:
    """layers.0.mlp aten::mm (model.py:12)"""
    module, _, rest = op_name.partition("|")
    op, _, line = rest.partition("|")
    line = short_line(line)
    return " ".join(x for x in (module, op, f"({line})" if line else "") if x)


def any_number(module: str) -> str:
    """layers.*.mlp, for all that differ in their numbers only"""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", module)


def anywhere(op_name: str) -> str:
    """layers.*.mlp aten::mm (model.py:12)"""
    module, bar, rest = op_name.partition("|")
    return where(any_number(module) + bar + rest)


def short_line(line: str) -> str:
    """The line without the folders of its file and without the function."""
    found = re.match(r"(.*):(\d+)", line)
    return f"{os.path.basename(found[1])}:{found[2]}" if found else line


def rows_text(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: set[int]) -> str:
    """Columns as wide as they need; those in `right` are set to the right."""
    widths = [max(len(r[i]) for r in [columns, *rows]) for i in range(len(columns))]

    def line(cells: tuple[str, ...]) -> str:
        return "  ".join(
            c.rjust(w) if i in right else c.ljust(w)
            for i, (c, w) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()

    return "\n".join([line(columns), "  ".join("-" * w for w in widths), *map(line, rows)])


def summary_rows(r: Report) -> list[tuple[str, str]]:
    """The report's head: name and value."""
    rows = [
        ("program", f"{r.name}, {'training step' if r.mode == 'train' else 'forward'}"),
        ("device", f"{r.chip.name}, {r.topology}, {size_text(r.capacity_bytes)} HBM"),
        ("fits", "yes" if r.fits else "NO"),
        ("peak", f"{size_text(r.peak_bytes)} ({r.peak_bytes / r.capacity_bytes:.0%})"),
        ("arguments", size_text(r.argument_bytes)),
        ("outputs", f"{size_text(r.output_bytes)}, {size_text(r.alias_bytes)} in place"),
        ("temporaries", size_text(r.temp_bytes)),
    ]
    if not r.fits or r.roofline is None:
        return rows
    line = r.roofline
    passes = ", ".join(f"{p}: {count_text(f)}" for p, f in r.mxu_passes.items()) or "no products"
    rows += [
        ("flops", count_text(r.flops)),
        ("flops by MXU passes", passes),
        ("bytes accessed", f"{size_text(r.bytes_accessed)}, {size_text(r.hbm_traffic_bytes)} HBM"),
        ("intensity", f"{line.intensity:.1f} flops a byte (ridge {line.ridge:.0f})"),
        ("estimated cycles", f"{r.estimated_cycles:,} in {len(r.fusions)} instructions"),
        (
            "estimated time",
            f"{time_text(line.seconds)} = cycles at {r.chip.clock_hz / 1e9:.2f} GHz",
        ),
        ("roofline", f"{time_text(line.bound_seconds)}, by {line.limited_by}"),
        ("share of peak", f"{line.peak_share:.1%}"),
    ]
    if line.samples_per_second:
        rows.append(("samples/s", f"{line.samples_per_second:,.1f}"))
    if line.tokens_per_second:
        rows.append(("tokens/s", f"{line.tokens_per_second:,.0f}"))
    return rows


def render(r: Report, width: int = 10) -> str:
    """The whole report."""
    from torch_tpu.aot._report import hot_kinds

    parts = [rows_text(("", ""), summary_rows(r), set()).split("\n", 2)[2]]
    if r.hot_spots:
        spots = [
            (
                f"{h.share:.1%}", f"{h.cycles:,}", str(h.count), h.module, h.op,
                short_line(h.line),
            )
            for h in hot_kinds(r.hot_spots)[:width]
        ]  # fmt: skip
        columns = ("share", "cycles", "modules", "module", "op", "line")
        parts.append(rows_text(columns, spots, {0, 1, 2}))
    if r.largest_buffers:
        rows = [
            (size_text(b.size_bytes), b.kind, b.name, b.shape, short_line(b.line))
            for b in r.largest_buffers
        ]
        parts.append(rows_text(("live at the peak", "kind", "name", "type", "line"), rows, {0}))
    if r.failure:
        parts.append("the compiler says: " + r.failure.strip().splitlines()[0][:300])
    if r.warnings:
        parts.append("\n".join(f"* {w}" for w in r.warnings))
    source = "from the cache" if r.from_cache else f"{r.compile_seconds:.1f} s to compile"
    parts.append(f"static estimates of {r.compiler or 'libtpu'}; {source}")
    return "\n\n".join(parts)
