"""What a compile for a TPU tells, for a terminal, as JSON and as a page."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch_tpu.aot import _advice, _hlo
from torch_tpu.aot._chips import Chip
from torch_tpu.aot._compiler import Compiled
from torch_tpu.aot._table import any_number
from torch_tpu.aot._trace import Program


@dataclass
class Fusion:
    """An instruction of the optimized program that runs on its own, and what it does for whom."""

    name: str
    opcode: str
    module: str  # path of the nn.Module
    op: str  # aten::mm
    line: str  # model.py:12 in forward
    cycles: int  # of one run, as the compiler estimates
    times: int  # runs


@dataclass
class HotSpot:
    """Estimated cycles of all instructions of one module and line."""

    module: str
    op: str
    line: str
    cycles: int
    share: float


@dataclass
class HotKind:
    """Hot spots of modules that differ in their numbers only, as the layers of a model do."""

    module: str  # layers.*.attention
    count: int
    op: str
    line: str
    cycles: int
    share: float


def hot_kinds(spots: list[HotSpot]) -> list[HotKind]:
    """Hot spots of repeated modules taken together, the dearest first."""
    groups: dict[tuple[str, str, str], list[HotSpot]] = defaultdict(list)
    for spot in spots:
        groups[(any_number(spot.module), spot.op, spot.line)].append(spot)
    rows = [
        HotKind(
            module if len(group) > 1 else group[0].module, len(group), op, line,
            sum(s.cycles for s in group), sum(s.share for s in group),
        )
        for (module, op, line), group in groups.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row.cycles)


@dataclass
class LiveBuffer:
    """A buffer that is in use when most memory is: the user's name of it and the line."""

    name: str
    kind: str
    size_bytes: int
    shape: str
    line: str


@dataclass
class Roofline:
    """Times in seconds. `bound_seconds` is what the chip's peaks allow, `seconds` the compiler's
    estimate of its program; shares are of the peak at that time.
    """

    compute_seconds: float
    memory_seconds: float
    bound_seconds: float
    seconds: float
    limited_by: str
    intensity: float  # flops per byte of main memory
    ridge: float  # the intensity at which both peaks are reached
    peak_share: float
    samples_per_second: float | None
    tokens_per_second: float | None


@dataclass
class Report:
    """A program compiled for a TPU that is not here. Sizes are in bytes, of one device."""

    name: str
    mode: str
    topology: str
    chip: Chip
    fits: bool
    capacity_bytes: int  # of the device's main memory, as the compiler knows it
    peak_bytes: int
    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int  # outputs in the memory of arguments
    flops: float
    bytes_accessed: float  # by instructions of the optimized program, on-chip memory included
    hbm_traffic_bytes: float
    estimated_cycles: int
    mxu_passes: dict[int, float]  # flops of matrix products by number of passes
    fusions: list[Fusion]
    hot_spots: list[HotSpot]
    largest_buffers: list[LiveBuffer]
    memory_timeline: list[tuple[int, int]]  # (step of the schedule, bytes in use)
    roofline: Roofline | None
    warnings: list[str]
    arguments: list[dict[str, Any]]
    outputs: list[str]
    compile_seconds: float
    from_cache: bool
    compiler: str
    failure: str = ""
    stablehlo: str = field(default="", repr=False)
    optimized_hlo: str = field(default="", repr=False)
    serialized: bytes = field(default=b"", repr=False)

    def to_json(self) -> str:
        """All figures, without the programs' texts."""
        left_out = ("stablehlo", "optimized_hlo", "serialized")
        data = {k: v for k, v in asdict(self).items() if k not in left_out}
        return json.dumps(data, indent=1)

    def to_html(self, path: str | Path) -> Path:
        """A page of its own with a roofline plot and a timeline of the memory.

        Needs matplotlib (the extra `aot`); raises ImportError with what to install.
        """
        from torch_tpu.aot._page import write

        return write(self, Path(path))

    def save(self, folder: str | Path) -> Path:
        """Write report.json, program.mlir, optimized.hlo and, if it fits, program.exe.

        The last is what `torch_tpu` and other PJRT clients load on a machine with this TPU and
        this release of libtpu.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(self.to_json())
        (folder / "program.mlir").write_text(self.stablehlo)
        (folder / "optimized.hlo").write_text(self.optimized_hlo)
        if self.serialized:
            (folder / "program.exe").write_bytes(self.serialized)
        return folder

    def __str__(self) -> str:
        from torch_tpu.aot._table import render

        return render(self)


def split_name(op_name: str) -> tuple[str, str, str]:
    """Module, op and line of what the traced program calls an instruction."""
    module, _, rest = op_name.partition("|")
    op, _, line = rest.partition("|")
    return module, op, line


def make(
    program: Program, compiled: Compiled, topology: str, chip: Chip, about: dict[str, str]
) -> Report:
    """The report of a compiled program."""
    module = _hlo.parse(compiled.texts.get("hlo", ""))
    found = _hlo.buffers(compiled.texts.get("buffers", ""), compiled.texts.get("live", ""))
    fusions = _fusions(module)
    cycles = sum(f.cycles * f.times for f in fusions)
    products = list(_hlo.products(module))
    passes: dict[int, float] = defaultdict(float)
    for product, times in products:
        passes[product.passes] += product.flops * times
    timeline = _hlo.timeline(found)
    numbers = compiled.numbers
    fits = not compiled.failure
    capacity = int(float(about.get("device.device_memory_bytes_limit", chip.hbm_bytes)))
    arguments = sum(a.size_bytes for a in program.arguments)
    peak = sum(b.size_bytes for b in found if b.parameter >= 0 or b.output or b.last >= b.first)
    peak = max((total for _, total in timeline), default=peak)
    if not fits:
        peak = max(_advice.needed_bytes(compiled.failure), arguments)
    report = Report(
        name=program.name,
        mode=program.mode,
        topology=topology,
        chip=chip,
        fits=fits,
        capacity_bytes=capacity,
        peak_bytes=peak,
        argument_bytes=int(numbers.get("argument_bytes", arguments)),
        output_bytes=int(numbers.get("output_bytes", 0)),
        temp_bytes=_temporaries(found),
        alias_bytes=int(numbers.get("alias_bytes", 0)),
        # The compiler counts the body of a loop once.
        flops=numbers.get("cost.flops", 0.0) + sum(p.flops * (t - 1) for p, t in products),
        bytes_accessed=_hlo.traffic(module, everywhere=True),
        hbm_traffic_bytes=_hlo.traffic(module),
        estimated_cycles=cycles,
        mxu_passes=dict(sorted(passes.items())),
        fusions=fusions,
        hot_spots=_hot_spots(fusions, cycles),
        largest_buffers=_largest(found, timeline, program, module),
        memory_timeline=timeline,
        roofline=None,
        warnings=[],
        arguments=[asdict(a) for a in program.arguments],
        outputs=program.outputs,
        compile_seconds=compiled.seconds,
        from_cache=compiled.from_cache,
        compiler=about.get("platform_version", "").replace("\\n", " "),
        failure=compiled.failure,
        stablehlo=program.text,
        optimized_hlo=compiled.texts.get("hlo", ""),
        serialized=compiled.serialized,
    )
    if fits:
        report.roofline = _roofline(report, program)
    report.warnings = _advice.warnings(report, program, module, products, found)
    return report


def _fusions(module: _hlo.Module) -> list[Fusion]:
    out = []
    for i, times, where in module.scheduled():
        cycles = i.cycles
        if cycles == 0:
            continue
        # A fusion is named after its root; what costs is a product in it.
        name = _hlo.dearest_product(module, i, where) or i.op_name
        name = name or next((x.op_name for x, _ in module.inside(i, where) if x.op_name), "")
        out.append(Fusion(i.name, i.opcode, *split_name(name), cycles, times))
    return out


def _hot_spots(fusions: list[Fusion], total: int) -> list[HotSpot]:
    cycles: dict[tuple[str, str, str], int] = defaultdict(int)
    for f in fusions:
        cycles[(f.module, f.op, f.line)] += f.cycles * f.times
    rows = sorted(cycles.items(), key=lambda kv: -kv[1])
    return [HotSpot(*key, n, n / total) for key, n in rows if total]


def _temporaries(found: list[_hlo.Buffer]) -> int:
    steps = _hlo.timeline([b for b in found if b.parameter < 0 and not b.output])
    return max((total for _, total in steps), default=0)


def _largest(
    found: list[_hlo.Buffer],
    timeline: list[tuple[int, int]],
    program: Program,
    module: _hlo.Module,
) -> list[LiveBuffer]:
    at = max(timeline, key=lambda t: t[1])[0] if timeline else 0
    names = {i.name: i.op_name for c in module.computations.values() for i in c}
    out: list[LiveBuffer] = []
    for b in sorted(found, key=lambda b: -b.size_bytes):
        if not b.first <= at <= b.last or len(out) == 10:
            continue
        # A tuple's element is called name{0}.
        owner, op, line = split_name(names.get(b.name, ""))
        if 0 <= b.parameter < len(program.arguments):
            argument = program.arguments[b.parameter]
            name, kind = argument.name, argument.kind
        elif b.output:
            name, kind = owner or "result", "output"
        else:
            name, kind = f"{owner} {op}".strip() or b.name, "temporary"
        out.append(LiveBuffer(name, kind, b.size_bytes, b.shape.split("{")[0], line))
    return out


def _roofline(r: Report, program: Program) -> Roofline:
    chip = r.chip
    worked = sum(passes * flops for passes, flops in r.mxu_passes.items())
    compute = worked / chip.bf16_flops
    memory = r.hbm_traffic_bytes / chip.hbm_bandwidth
    bound = max(compute, memory)
    seconds = max(r.estimated_cycles / chip.clock_hz, bound)
    products = sum(r.mxu_passes.values())
    rate = 1 / seconds if seconds else 0.0
    return Roofline(
        compute_seconds=compute,
        memory_seconds=memory,
        bound_seconds=bound,
        seconds=seconds,
        limited_by="compute" if compute >= memory else "memory",
        intensity=r.flops / r.hbm_traffic_bytes if r.hbm_traffic_bytes else 0.0,
        ridge=chip.bf16_flops / chip.hbm_bandwidth,
        peak_share=products * rate / chip.bf16_flops,
        samples_per_second=program.batch * rate if program.batch else None,
        tokens_per_second=program.tokens * rate if program.tokens else None,
    )
