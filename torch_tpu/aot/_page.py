"""A report as one HTML file: its plots are SVG inside of it, nothing is fetched."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch_tpu.aot._report import Report, hot_kinds
from torch_tpu.aot._table import count_text, short_line, size_text, summary_rows

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2430; background: #fff;
       max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p.lead { color: #5a6472; margin: 0 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #e4e8ee;
         vertical-align: top; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
td.long { overflow-wrap: anywhere; min-width: 10rem; }
th { color: #5a6472; font-weight: 600; white-space: nowrap; }
td.n, th.n { text-align: right; white-space: nowrap; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); gap: .6rem; }
.card { border: 1px solid #e4e8ee; border-radius: 6px; padding: .5rem .7rem; }
.card b { display: block; font-size: .95rem; } .card span { color: #5a6472; font-size: .85rem; }
.no { color: #b3261e; } .yes { color: #1b7f3b; }
ul.advice li { margin: .3rem 0; } figure { margin: 1rem 0; }
figure svg { width: 100%; height: auto; }
footer { color: #5a6472; font-size: .85rem; margin: 2rem 0; }
.bar { background: #dbe6f8; height: .5rem; border-radius: 3px; }
"""
_BLUE, _GREY, _RED = "#2f6fd0", "#9aa4b2", "#b3261e"


def write(r: Report, path: Path) -> Path:
    """Write the page. Raises ImportError when matplotlib is not there."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            "the page's plots need matplotlib: pip install 'torch_tpu[aot]'"
        ) from error
    with matplotlib.rc_context({"svg.fonttype": "path", "font.size": 9, "axes.grid": True,
                                "grid.color": "#e4e8ee", "axes.axisbelow": True}):  # fmt: skip
        plots = [_memory(r)] + ([_roofline(r)] if r.roofline else [])
    path.write_text(_document(r, plots), encoding="utf-8")
    return path


def _document(r: Report, plots: list[str]) -> str:
    verdict = '<b class="yes">fits</b>' if r.fits else '<b class="no">does not fit</b>'
    cards = "".join(
        f'<div class="card"><span>{html.escape(k)}</span><b>{html.escape(v)}</b></div>'
        for k, v in summary_rows(r)[3:]  # the lead has the first ones
    )
    parts = [
        f"<h1>{html.escape(r.name)} on {html.escape(r.chip.name)}</h1>",
        f'<p class="lead">{"training step" if r.mode == "train" else "forward"} for one device of '
        f"{html.escape(r.topology)}: {verdict}</p>",
        f'<div class="cards">{cards}</div>',
    ]
    if r.failure:
        parts += ["<h2>The compiler says</h2>", f"<pre>{html.escape(r.failure[:4000])}</pre>"]
    if r.warnings:
        items = "".join(f"<li>{html.escape(w)}</li>" for w in r.warnings)
        parts += ["<h2>Advice</h2>", f'<ul class="advice">{items}</ul>']
    parts += [f"<figure>{plot}</figure>" for plot in plots]
    if r.hot_spots:
        parts += [
            "<h2>Hot spots</h2>",
            _table(
                ("share", "cycles", "modules", "module", "op", "line"),
                (
                    (
                        _share(h.share),
                        f"{h.cycles:,}",
                        str(h.count),
                        h.module,
                        h.op,
                        short_line(h.line),
                    )
                    for h in hot_kinds(r.hot_spots)[:40]
                ),
                {1, 2},
            ),
        ]
    if r.largest_buffers:
        parts += [
            "<h2>Largest buffers at the peak</h2>",
            _table(
                ("size", "kind", "name", "type", "line"),
                (
                    (size_text(b.size_bytes), b.kind, b.name, b.shape, short_line(b.line))
                    for b in r.largest_buffers
                ),
                {0},
            ),
        ]
    if r.fusions:
        dearest = sorted(r.fusions, key=lambda f: -f.cycles * f.times)[:60]
        parts += [
            "<h2>Instructions</h2>",
            _table(
                ("cycles", "runs", "instruction", "module", "op", "line"),
                (
                    (f"{f.cycles:,}", str(f.times), f.name, f.module, f.op, short_line(f.line))
                    for f in dearest
                ),
                {0, 1},
            ),
        ]
    chip = r.chip
    figures = (
        ("bfloat16 peak", f"{count_text(chip.bf16_flops)}flop/s", chip.source),
        ("HBM bandwidth", f"{count_text(chip.hbm_bandwidth)}B/s", chip.source),
        ("HBM", f"{size_text(r.capacity_bytes)}", "the compiler"),
        ("clock", f"{chip.clock_hz / 1e9:.2f} GHz", chip.clock_source),
    )
    parts += ["<h2>Figures of the chip</h2>", _table(("figure", "value", "source"), figures, {1})]
    parts.append(
        "<footer>Static estimates of the compiler, nothing was run. Its cycles of an instruction "
        "are a cost model; instructions that overlap are counted one after the other. "
        f"{html.escape(r.compiler)}</footer>"
    )
    title = html.escape(f"{r.name} on {r.topology}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        + "\n".join(parts)
        + "</html>\n"
    )


class _Markup(str):
    """Text that is HTML already."""


def _share(share: float) -> str:
    return _Markup(f'{share:.1%}<div class="bar" style="width:{share * 100:.1f}%"></div>')


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], right: set[int]) -> str:
    def cell(tag: str, i: int, text: str) -> str:
        markup = isinstance(text, _Markup)
        inner = text if markup else html.escape(text)
        long = len(text) > 40 and not markup
        kind = " class=n" if i in right else " class=long" if long else ""
        return f"<{tag}{kind}>{inner}</{tag}>"

    lines = [f"<tr>{''.join(cell('th', i, c) for i, c in enumerate(columns))}</tr>"]
    lines += [f"<tr>{''.join(cell('td', i, c) for i, c in enumerate(row))}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"


def _svg(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _figure(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, height))
    return figure, figure.subplots()


def _title(axes: Any, text: str) -> None:
    """A title on the left and a legend on the right, both above the plot: nothing is covered."""
    axes.set_title(text, loc="left", fontweight="bold")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, frameon=False, borderaxespad=0.3)


def _memory(r: Report) -> str:
    figure, axes = _figure(2.8)
    power, unit = (30, "GiB") if r.peak_bytes > 2**29 else (20, "MiB")
    scale = 2**power
    steps = [s for s, _ in r.memory_timeline] or [0]
    used = [b / scale for _, b in r.memory_timeline] or [r.peak_bytes / scale]
    # The last level holds to the end.
    axes.step([*steps, steps[-1] + 1], [*used, used[-1]], where="post", color=_BLUE, label="in use")
    axes.fill_between(
        [*steps, steps[-1] + 1], [*used, used[-1]], step="post", color=_BLUE, alpha=0.15
    )
    if r.peak_bytes > 0.2 * r.capacity_bytes:
        axes.axhline(r.capacity_bytes / scale, color=_RED, linestyle="--", label="capacity")
    axes.axhline(r.argument_bytes / scale, color=_GREY, linestyle=":", label="arguments")
    axes.set(xlabel="instruction", ylabel=unit)
    axes.set_ylim(bottom=0)
    _title(axes, "Main memory over the program's schedule")
    return _svg(figure)


def _roofline(r: Report) -> str:
    line, chip = r.roofline, r.chip
    assert line is not None
    figure, axes = _figure(3.4)
    low = min(1.0, line.intensity / 4 or 1.0)
    high = max(10 * line.ridge, 4 * line.intensity)
    xs = [low, line.ridge, high]
    axes.plot(xs, [min(x * chip.hbm_bandwidth, chip.bf16_flops) / 1e12 for x in xs], color=_GREY,
              label="bfloat16 peak and HBM bandwidth")  # fmt: skip
    for passes in r.mxu_passes:
        if passes > 1:
            axes.hlines(chip.bf16_flops / passes / 1e12, line.ridge / passes, high, color=_GREY,
                        linestyle=":", label=f"float32 in {passes} passes")  # fmt: skip
    rate = r.flops / line.seconds / 1e12 if line.seconds else 0
    axes.plot([line.intensity], [rate], "o", color=_RED, label=f"this program: {rate:.3g} Tflop/s")
    axes.set(xscale="log", yscale="log", xlabel="flops a byte of main memory", ylabel="Tflop/s")
    _title(axes, "Roofline")
    return _svg(figure)
