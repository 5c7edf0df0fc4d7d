"""Chips by topology family: what the roofline needs, with where each figure comes from.

A device is what a program runs on: a chip, except on v7x, whose chips hold two. Peaks are for one
device. The capacity of the memory is asked of the compiler; the figure here is the maker's.
"""

from __future__ import annotations

from dataclasses import dataclass

_DOCS = "https://cloud.google.com/tpu/docs/"


@dataclass(frozen=True)
class Chip:
    """Figures of one device of a family."""

    name: str
    family: str  # the compiler's spelling
    bf16_flops: float  # per second
    int8_ops: float
    hbm_bytes: float  # capacity, as the maker says
    hbm_bandwidth: float  # bytes per second
    clock_hz: float  # of the cycles that the compiler counts
    mxu: int  # the matrix unit's edge
    dims: int  # of a topology
    source: str
    clock_source: str


def _flops_clock(flops: float, units: int, edge: int) -> float:
    # A unit does edge * edge multiply-adds, two operations each, a cycle.
    return flops / (2 * units * edge * edge)


_FROM_PEAK = "peak / (2 * matrix units * edge^2): {} units of {} x {}"

CHIPS = {
    chip.family: chip
    for chip in (
        Chip(
            "TPU v5e", "v5e", 197e12, 394e12, 16 * 2**30, 819e9,
            _flops_clock(197e12, 4, 128), 128, 2, _DOCS + "v5e", _FROM_PEAK.format(4, 128, 128),
        ),
        Chip(
            "TPU v5p", "v5p", 459e12, 918e12, 95 * 2**30, 2765e9,
            _flops_clock(459e12, 8, 128), 128, 3, _DOCS + "v5p", _FROM_PEAK.format(8, 128, 128),
        ),
        Chip(
            "TPU v6e", "v6e", 918e12, 1836e12, 32 * 2**30, 1640e9,
            _flops_clock(918e12, 4, 256) , 256, 2, _DOCS + "v6e", _FROM_PEAK.format(4, 256, 256),
        ),
        Chip(
            "TPU v7x (one of two devices of a chip)", "tpu7x", 2307e12 / 2, 4614e12 / 2,
            192 * 2**30 / 2, 7380e9 / 2,
            _flops_clock(2307e12 / 2, 4, 256), 256, 3, _DOCS + "tpu7x",
            _FROM_PEAK.format("4 a device,", 256, 256),
        ),
    )
}  # fmt: skip

# Chips of a slice -> topology, for "v6e:4".
_FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_CUBE = {1: "1x1x1", 4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4"}
_ALIASES = {"v5litepod": "v5e", "v5lite": "v5e", "v7x": "tpu7x", "v7": "tpu7x", "tpuv7x": "tpu7x"}


def known() -> list[str]:
    """Names of topologies, smallest first in each family."""
    return [
        f"{chip.family}:{shape}"
        for chip in CHIPS.values()
        for shape in (_FLAT if chip.dims == 2 else _CUBE).values()
        if not (chip.family == "v5p" and shape == "1x1x1")
    ]


def normalize(name: str) -> tuple[str, Chip]:
    """The compiler's spelling of a topology, and its chip.

    Takes "v6e:2x2", "v7x:2x2x1", a number of chips ("v6e:4", "v5litepod-4") and the family alone
    (one chip). Raises ValueError, with the names there are, for others.
    """
    if not isinstance(name, str):
        raise ValueError(f"a topology is a name such as 'v6e:1x1', not {name!r}")
    family, _, shape = name.strip().lower().replace("_", ":").replace("-", ":").partition(":")
    family = _ALIASES.get(family, family)
    chip = CHIPS.get(family)
    if chip is not None:
        shapes = _FLAT if chip.dims == 2 else _CUBE
        # The smallest slice of v5p that the compiler knows has four chips; one of them runs it.
        smallest = 4 if family == "v5p" else 1
        if not shape:
            shape = shapes[smallest]
        elif shape.isdigit() and int(shape) in shapes and int(shape) >= smallest:
            shape = shapes[int(shape)]
        parts = shape.split("x")
        if len(parts) == 2 and chip.dims == 3:
            parts.append("1")
        if len(parts) == chip.dims and all(p.isdigit() and int(p) > 0 for p in parts):
            return f"{family}:{'x'.join(parts)}", chip
    raise ValueError(f"there is no topology {name!r}; known are {', '.join(known())}")
