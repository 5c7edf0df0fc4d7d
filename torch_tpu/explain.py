"""What a block of code made the device do, line by line (`torch.tpu.explain`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any

from torch_tpu import _C
from torch_tpu.memory import _bytes

__all__ = ["Explanation", "Row", "explain"]


@dataclass
class Row:
    """What one line of the user's code caused."""

    where: str
    """`file:line in function`; empty where no Python code was running."""
    windows: int = 0
    """Times that what was recorded was run because of this line."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why, by the names of `torch_tpu.debug.counters()["flushes"]`."""
    ops: int = 0
    """Ops in these windows."""
    launches: int = 0
    """Programs launched for them."""
    compiles: int = 0
    """Programs compiled whose first op is on this line."""
    compile_seconds: float = 0.0
    bytes_h2d: int = 0
    """Bytes copied to the device."""
    bytes_d2h: int = 0
    """Bytes copied to the host."""
    waits: int = 0
    """Times that the host waited for a value."""
    wait_seconds: float = 0.0
    fallbacks: Counter[str] = field(default_factory=Counter)
    """Ops that ran on the CPU."""
    changes: list[str] = field(default_factory=list)
    """For each further compile of as many ops: what differed from the one before."""


def _change(before: list[str], now: list[str]) -> str:
    pairs = list(zip(before, now, strict=True))
    different = [(a, b) for a, b in pairs if a != b]
    if not different:
        return "the same ops, but other results or inputs are still in use after them"
    a, b = different[0]
    more = f", and {len(different) - 1} more" if len(different) > 1 else ""
    return f"{b} instead of {a}{more}"


class Explanation:
    """Context manager: collects what the block makes the device do.

    `rows` is a list of `Row`, the costliest line first; `str()` is a table; `to_html()` one for
    notebooks. What other threads do meanwhile is counted, too. Call sites cost a few microseconds
    for each event, so that timings in the block are not those of the code alone.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __enter__(self) -> Explanation:
        _C.take_events()
        _C.keep_events(True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _C.keep_events(False)
        self._add(_C.take_events())

    def _add(self, events: list[dict[str, Any]]) -> None:
        rows = {row.where: row for row in self.rows}
        last: dict[tuple[str, int], list[str]] = {}
        for e in events:
            row = rows.setdefault(e["where"], Row(e["where"]))
            match e["kind"]:
                case "flush":
                    row.windows += 1
                    row.reasons[e["what"]] += 1
                    row.ops += e["ops"]
                    row.launches += e["launches"]
                case "compile":
                    row.compiles += 1
                    row.compile_seconds += e["seconds"]
                    key = e["where"], e["ops"]
                    if key in last:
                        row.changes.append(_change(last[key], e["signatures"]))
                    last[key] = e["signatures"]
                case "upload":
                    row.bytes_h2d += e["bytes"]
                case "download":
                    row.bytes_d2h += e["bytes"]
                    row.waits += 1
                    row.wait_seconds += e["seconds"]
                case "fallback":
                    row.fallbacks[e["what"]] += 1
        self.rows = sorted(
            rows.values(), key=lambda r: (-r.compile_seconds - r.wait_seconds, -r.launches, r.where)
        )

    def _table(self) -> tuple[list[str], list[list[str]]]:
        head = ["line", "windows", "why", "ops", "launches", "compiles", "to device", "to host"]
        head += ["waits", "on the CPU"]
        body = []
        for r in self.rows:
            compiles = f"{r.compiles} ({r.compile_seconds:.2f} s)" if r.compiles else ""
            waits = f"{r.waits} ({r.wait_seconds:.3f} s)" if r.waits else ""
            cells = [
                r.where or "(no Python line)",
                r.windows or "",
                ", ".join(f"{n} {why}" for why, n in r.reasons.most_common()),
                r.ops or "",
                r.launches or "",
                compiles,
                _bytes(r.bytes_h2d) if r.bytes_h2d else "",
                _bytes(r.bytes_d2h) if r.bytes_d2h else "",
                waits,
                ", ".join(f"{n} {op}" for op, n in r.fallbacks.most_common()),
            ]
            body.append([str(c) for c in cells])
        return head, body

    def _notes(self) -> list[str]:
        notes = []
        for r in self.rows:
            for change, times in Counter(r.changes).most_common(3):
                again = f" ({times} times)" if times > 1 else ""
                notes.append(f"{r.where or '(no Python line)'}: compiled again{again}: {change}")
        return notes

    def __str__(self) -> str:
        head, body = self._table()
        used = [i for i, _ in enumerate(head) if i == 0 or any(row[i] for row in body)]
        lines = [[cells[i] for i in used] for cells in [head, *body]]
        width = [max(len(cells[i]) for cells in lines) for i in range(len(used))]
        text = [
            "  ".join(c.ljust(w) for c, w in zip(cells, width, strict=True)).rstrip()
            for cells in lines
        ]
        text.insert(1, "  ".join("-" * w for w in width))
        notes = self._notes()
        return "\n".join([*text, "", *notes] if notes else text)

    __repr__ = __str__

    def to_html(self) -> str:
        """The table as HTML."""
        import html  # not when torch is imported

        head, body = self._table()

        def row(cells: list[str], tag: str) -> str:
            return "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells)

        notes = "".join(f"<li>{html.escape(n)}</li>" for n in self._notes())
        return (
            f"<table><tr>{row(head, 'th')}</tr>"
            + "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in body)
            + f"</table><ul>{notes}</ul>"
        )

    _repr_html_ = to_html

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as plain values."""
        return [asdict(row) for row in self.rows]


def explain() -> Explanation:
    """`with torch.tpu.explain() as e: ...; print(e)`: what each line cost: windows and why they
    ended, launches, compiles and what differed, copies, waits of the host, ops on the CPU.
    """
    return Explanation()
