#!/usr/bin/env python3
"""Have the TPU compiler read every lowering: which are accepted, which refused and why.

    python tools/tpu_check.py                   every operator of PyTorch's database, every dtype
    python tools/tpu_check.py --modules DIR     modules that TORCH_TPU_DUMP_DIR received
                                                (with TORCH_TPU_LOWER_FOR=tpu)
    python tools/tpu_check.py --changed --minutes 6     what is not recorded as accepted, within a
                                                        time

Operators are traced on placeholders, which compiles nothing on this machine, and each module is
compiled by libtpu in a process of its own. Results are kept by the module's hash, so that only
changed modules are compiled again, and summed up by op in tools/tpu_check.json, from which
tools/gen_docs.py writes columns of docs/ops.md; it also has the hashes of what was accepted. Exit
code 1 when a refusal has no documented reason (tools/tpu_refusals.txt), or fewer than 95 % are
accepted.
"""

import argparse
import hashlib
import json
import re
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch_tpu.aot import _compiler

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = ROOT / "tools" / "tpu_check.json"
REFUSALS = ROOT / "tools" / "tpu_refusals.txt"
DTYPES = (
    "float32 bfloat16 float16 float64 int32 int64 int8 uint8 int16 bool complex64 float8_e4m3fn "
    "float8_e5m2"
)
SECONDS = 180.0  # a module may take


class Results:
    """Answers by topology and module hash, on disk."""

    def __init__(self, path: Path, compiler: str) -> None:
        self.path, self.compiler = path, compiler
        self.answers: dict[str, str] = {}
        if path.exists():
            data = json.loads(path.read_text())
            if data.get("compiler") == compiler:
                self.answers = data["answers"]

    def save(self) -> None:
        """Write them, whole or not at all."""
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"compiler": self.compiler, "answers": self.answers}))
        new.replace(self.path)


class Checker:
    """Compiles modules one after the other; a compiler that ends or hangs is started again."""

    def __init__(self, results: Results, minutes: float) -> None:
        self.results, self.end = results, time.monotonic() + 60 * minutes
        self.child: _compiler.Child | None = None
        self.file = results.path.with_suffix(".mlir")
        self.compiled = 0

    def check(self, text: str, topology: str) -> str | None:
        """ "ok" or the compiler's reason; None where time is up."""
        key = f"{topology} {module_hash(text)}"
        answer = self.results.answers.get(key)
        if answer is None:
            if time.monotonic() > self.end:
                return None
            answer = self.results.answers[key] = self._compile(text, topology)
            self.compiled += 1
            if self.compiled % 50 == 0:
                self.results.save()
        return answer

    def _compile(self, text: str, topology: str) -> str:
        if self.child is None or not self.child.alive:
            self.child = _compiler.Child()
        child = self.child
        self.file.write_text(text)
        late = threading.Timer(SECONDS, child.kill)
        late.start()
        try:
            child.ask("compile", topology, str(self.file), "-", "")
        except _compiler.CompilerError as error:
            if not late.is_alive():
                return f"takes longer than {SECONDS:.0f} s"
            return str(error)
        finally:
            late.cancel()
        return "ok"


def module_hash(text: str) -> str:
    """Of the module without its locations: two tests that print the same are one."""
    return hashlib.sha256(re.sub(r' loc\("[^"]*"\)', "", text).encode()).hexdigest()[:24]


SPREAD = 20  # of the modules, where another compiler accepted them


def recorded(summary: Path, topology: str, compiler: str) -> tuple[set[str], bool]:
    """Hashes of the modules that the summary calls accepted, and whether by this compiler."""
    if not summary.exists():
        return set(), False
    about = json.loads(summary.read_text())
    lines = about.get("accepted", {}).get(topology, [])
    return {name for line in lines for name in line.split()}, about["compiler"] == compiler


def lines_of(names: set[str]) -> list[str]:
    """Short hashes, a few a line."""
    short = sorted(name[:SHORT] for name in names)
    return [" ".join(short[i : i + 7]) for i in range(0, len(short), 7)]


SHORT = 12  # hexadecimal digits of a recorded hash


def dumped(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """Texts and ops of modules in a folder."""
    for path in sorted(folder.glob("*.mlir")):
        head, _, text = path.read_text().partition("\n")
        if head.startswith("//"):
            yield text, set(head[2:].split())


def traced(pattern: str, dtypes: list[str], samples: int) -> Iterator[tuple[str, set[str]]]:
    """Texts and ops of the operators in PyTorch's database, forward and, where there is one,
    backward.
    """
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    database: list[Any] = op_db
    for op in database:
        if not re.search(pattern, op.name):
            continue
        for dtype in (getattr(torch, name) for name in dtypes):
            if not op.supports_dtype(dtype, "cpu"):
                continue
            grad = dtype.is_floating_point and op.supports_autograd
            try:
                found = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
            except Exception:
                continue  # no sample of this dtype
            for sample in found[:: max(1, len(found) // samples)][:samples]:
                for text in program_of(op, sample, grad):
                    yield text, set(re.findall(r'loc\("[^"|]*\|([^"|]+)\|', text))


def program_of(op: Any, sample: Any, grad: bool) -> Iterator[str]:
    """The program of one sample; nothing where the CPU refuses it or a value has to be read."""
    import torch
    from torch.utils import _pytree as pytree

    from torch_tpu.aot import _trace

    def forward(first: Any, rest: Any, named: Any) -> Any:
        return op(first, *rest, **named)

    def backward(first: Any, rest: Any, named: Any) -> Any:
        result = op(first, *rest, **named)
        if sample.output_process_fn_grad is not None:
            result = sample.output_process_fn_grad(result)
        outs = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        outs = [t for t in outs if t.requires_grad]
        return sum((o * torch.ones_like(o)).real.float().sum() for o in outs)

    def on_device(x: Any) -> Any:
        return torch.device("tpu") if isinstance(x, torch.device) or x == "cpu" else x

    given = pytree.tree_map(on_device, (sample.input, sample.args, sample.kwargs))
    modes = [(forward, "forward")] + ([(backward, "train")] if grad else [])
    for function, mode in modes:
        try:
            yield _trace.trace(function, given, mode=mode).text
        except Exception:
            return


def reasons() -> list[tuple[re.Pattern[str], str]]:
    """Documented refusals: "<pattern of the compiler's text> # <why>", one a line."""
    rows = []
    for line in REFUSALS.read_text().splitlines() if REFUSALS.exists() else []:
        pattern, _, why = line.partition(" # ")
        if why and not line.startswith("#"):
            rows.append((re.compile(pattern), why))
    return rows


def cause(text: str) -> str:
    """The compiler's text without what differs from module to module."""
    text = text.split("\n")[0] if not text.startswith("the compiler's process") else text
    text = re.sub(r"%[\w.\-]+|\b\d+\b|\[[^\]]*\]|\{[^}]*\}", "_", text)
    return text[:160]


def main() -> int:
    """Check, print causes of refusals, write the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--modules", type=Path, action="append", default=[])
    parser.add_argument("--no-trace", action="store_true", help="only the folders of --modules")
    parser.add_argument("--ops", default="", help="only operators whose name matches")
    parser.add_argument("--dtypes", default=DTYPES)
    parser.add_argument("--samples", type=int, default=2, help="of an operator and dtype")
    parser.add_argument("--topology", action="append", help="default: v6e:1x1")
    parser.add_argument("--spread", type=int, default=0, help="every n-th module also for others")
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="time for compiling; default: any"
    )
    parser.add_argument(
        "--changed", action="store_true",
        help="only what the summary does not call accepted, and a few of those that another "
        "release of the compiler accepted",
    )  # fmt: skip
    parser.add_argument("--results", type=Path, default=_compiler.cache_folder() / "check.json")
    parser.add_argument("--summary", type=Path, default=SUMMARY)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    compiler = _compiler.describe("v6e:1x1")["platform_version"]
    results = Results(options.results, compiler)
    checker = Checker(results, options.minutes)
    topologies = options.topology or ["v6e:1x1"]
    others = ["v5e:1x1", "v5p:2x2x1", "tpu7x:1x1x1"] if options.spread else []

    ops: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    totals: Counter[str] = Counter()
    causes: dict[str, list[str]] = defaultdict(list)
    known = reasons()
    unexplained = 0
    seen: set[str] = set()
    accepted: dict[str, set[str]] = defaultdict(set)
    old = {t: recorded(options.summary, t, compiler) for t in topologies if options.changed}
    start = shown = time.monotonic()

    def sources() -> Iterator[tuple[str, set[str]]]:
        for folder in options.modules:
            yield from dumped(folder)
        if not options.no_trace:
            yield from traced(options.ops, options.dtypes.split(), options.samples)

    for text, names in sources():
        name = module_hash(text)
        first = name not in seen
        seen.add(name)
        spread = others if options.spread and len(seen) % options.spread == 0 else []
        for topology in [*topologies, *spread]:
            if options.changed:
                hashes, same = old.get(topology, (set(), False))
                if name[:SHORT] in hashes and (same or len(seen) % SPREAD or not first):
                    totals[f"{topology} as recorded"] += first
                    continue
            answer = checker.check(text, topology)
            if answer is None:
                totals[f"{topology} left for lack of time"] += first
                continue
            why = next((w for pattern, w in known if pattern.search(answer)), "")
            verdict = "ok" if answer == "ok" else (why or cause(answer))
            for op in names:
                ops[op][topology.split(":")[0]][verdict] += 1
            if answer == "ok":
                accepted[topology].add(name)
            if first:
                totals[f"{topology} {'ok' if answer == 'ok' else 'refused'}"] += 1
                if answer != "ok":
                    causes[cause(answer)].append(f"{name} {' '.join(sorted(names))}")
                    unexplained += not why
        if time.monotonic() - shown > 60:
            shown = time.monotonic()
            print(f"{len(seen)} modules, {dict(totals)}, {shown - start:.0f} s", flush=True)
    results.save()
    for text, which in sorted(causes.items(), key=lambda kv: -len(kv[1])):
        print(f"{len(which):5} {text}\n      e.g. {which[0]}")
    for key, count in sorted(totals.items()):
        print(f"{key}: {count}")
    print(
        f"{checker.compiled} compiled, {time.monotonic() - start:.0f} s, {unexplained} unexplained"
    )
    if not options.changed and not options.ops:
        table = {op: {k: dict(v) for k, v in sorted(rows.items())} for op, rows in ops.items()}
        about = {
            "compiler": compiler,
            "modules": dict(totals),
            "ops": dict(sorted(table.items())),
            "accepted": {t: lines_of(names) for t, names in sorted(accepted.items())},
        }
        options.summary.write_text(json.dumps(about, indent=1) + "\n")
    accepted = sum(n for key, n in totals.items() if key.endswith("ok"))
    refused = sum(n for key, n in totals.items() if key.endswith("refused"))
    return int(unexplained > 0 or accepted < 0.95 * (accepted + refused))


if __name__ == "__main__":
    sys.exit(main())
