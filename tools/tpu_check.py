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
tools/gen_docs.py writes columns of docs/ops.md; it also has a hash of the programs of each operator
that was accepted. Exit code 1 when a refusal has no documented reason (tools/tpu_refusals.txt), or
fewer than 95 % are accepted.
"""

import argparse
import functools
import hashlib
import json
import re
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
QUICK = ("float32", "bfloat16", "int64")
OPERATORS = 15
SECONDS = 180.0  # a module may take
SLOW = "takes longer than"


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

    @property
    def late(self) -> bool:
        """Whether time is up."""
        return time.monotonic() > self.end

    def check(self, text: str, topology: str) -> str | None:
        """ "ok" or the compiler's reason; None where time is up."""
        key = f"{topology} {module_hash(text)}"
        answer = self.results.answers.get(key)
        if answer is None:
            if self.late:
                return None
            answer = self._compile(text, topology)
            if not answer.startswith(SLOW):  # another time the machine may be less busy
                self.results.answers[key] = answer
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
                return f"{SLOW} {SECONDS:.0f} s"
            return str(error)
        finally:
            late.cancel()
        return "ok"


def module_hash(text: str) -> str:
    """Of the module without its locations: two tests that print the same are one."""
    return hashlib.sha256(re.sub(r' loc\("[^"]*"\)', "", text).encode()).hexdigest()[:24]


def ops_in(text: str) -> set[str]:
    """The declared ops that a traced program's locations name."""
    return set(re.findall(r'loc\("[^"|]*\|([^"|]+)\|', text))


def fingerprint(texts: list[str]) -> str:
    """Of the modules that a quick run traces for an operator."""
    return hashlib.sha256(" ".join(map(module_hash, texts)).encode()).hexdigest()[:12]


def dumped(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """Texts and ops of modules in a folder."""
    for path in sorted(folder.glob("*.mlir")):
        head, _, text = path.read_text().partition("\n")
        if head.startswith("//"):
            yield text, set(head[2:].split())


@dataclass
class Module:
    """A program of an operator of PyTorch's database. `quick`: a quick run has it, too."""

    text: str
    ops: set[str]
    quick: bool


def traced(
    pattern: str, dtypes: list[str], samples: int
) -> Iterator[tuple[str, Callable[[], list[Module]]]]:
    """Operators of PyTorch's database, and what gives their programs: forward and, where there is
    one, backward.
    """
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    def modules(op: Any) -> list[Module]:
        made = []
        for name in dtypes:
            dtype = getattr(torch, name)
            if not op.supports_dtype(dtype, "cpu"):
                continue
            grad = dtype.is_floating_point and op.supports_autograd
            try:
                found = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
            except Exception:
                continue  # no sample of this dtype
            chosen = found[:: max(1, len(found) // samples)][:samples]
            for n, sample in enumerate(chosen):
                for text in program_of(op, sample, grad):
                    made.append(Module(text, ops_in(text), n == 0 and name in QUICK))
        return made

    database: list[Any] = op_db
    seen: Counter[str] = Counter()
    for op in database:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        seen[name] += 1
        if seen[name] > 1:
            name = f"{name}#{seen[name]}"
        if re.search(pattern, op.name):
            yield name, functools.partial(modules, op)


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


class Tally:
    """Verdicts by op and topology, causes of refusals."""

    def __init__(self, checker: Checker, topologies: list[str], others: list[str], spread: int):
        self.checker, self.topologies, self.others, self.spread = (
            checker, topologies, others, spread,
        )  # fmt: skip
        self.ops: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        self.totals: Counter[str] = Counter()
        self.causes: dict[str, list[str]] = defaultdict(list)
        self.reasons = reasons()
        self.unexplained = 0
        self.seen: set[str] = set()
        self.start = self.shown = time.monotonic()

    def add(self, text: str, names: set[str]) -> bool:
        """Check one module; whether the first topology's compiler accepts it."""
        name = module_hash(text)
        first = name not in self.seen
        self.seen.add(name)
        others = self.others if self.spread and len(self.seen) % self.spread == 0 else []
        accepted = True
        for topology in [*self.topologies, *others]:
            answer = self.checker.check(text, topology)
            if answer is None:
                self.totals[f"{topology} left for lack of time"] += first
                accepted = False
                continue
            why = next((w for pattern, w in self.reasons if pattern.search(answer)), "")
            verdict = "ok" if answer == "ok" else (why or cause(answer))
            for op in names:
                self.ops[op][topology.split(":")[0]][verdict] += 1
            accepted &= answer == "ok"
            if first:
                self.totals[f"{topology} {'ok' if answer == 'ok' else 'refused'}"] += 1
                if answer != "ok":
                    self.causes[cause(answer)].append(f"{name} {' '.join(sorted(names))}")
                    self.unexplained += not why
        if time.monotonic() - self.shown > 60:
            self.shown = time.monotonic()
            print(
                f"{len(self.seen)} modules, {dict(self.totals)}, {self.shown - self.start:.0f} s",
                flush=True,
            )
        return accepted

    def show(self) -> None:
        """Print causes and totals."""
        for text, which in sorted(self.causes.items(), key=lambda kv: -len(kv[1])):
            print(f"{len(which):5} {text}\n      e.g. {which[0]}")
        for key, count in sorted(self.totals.items()):
            print(f"{key}: {count}")
        print(
            f"{self.checker.compiled} compiled, {time.monotonic() - self.start:.0f} s, "
            f"{self.unexplained} unexplained"
        )

    @property
    def passed(self) -> bool:
        """Whether all refusals are explained and few."""
        accepted = sum(n for key, n in self.totals.items() if key.endswith("ok"))
        refused = sum(n for key, n in self.totals.items() if key.endswith("refused"))
        return self.unexplained == 0 and accepted >= 0.95 * (accepted + refused)


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
        "--changed",
        action="store_true",
        help="quick: one sample of three dtypes, and only operators whose programs\n"
        "differ from those that the summary calls accepted; where another release\n"
        f"of the compiler accepted them, every {OPERATORS}th",
    )
    parser.add_argument("--results", type=Path, default=_compiler.cache_folder() / "check.json")
    parser.add_argument("--summary", type=Path, default=SUMMARY)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    compiler = _compiler.describe("v6e:1x1")["platform_version"]
    results = Results(options.results, compiler)
    checker = Checker(results, options.minutes)
    others = ["v5e:1x1", "v5p:2x2x1", "tpu7x:1x1x1"] if options.spread else []
    tally = Tally(checker, options.topology or ["v6e:1x1"], others, options.spread)
    dtypes, samples = options.dtypes.split(), options.samples
    if options.changed:
        dtypes, samples = list(QUICK), 1
    old: dict[str, Any] = (
        json.loads(options.summary.read_text()) if options.summary.exists() else {}
    )
    known, same = old.get("programs", {}), old.get("compiler") == compiler
    accepted: dict[str, str] = {}

    for folder in options.modules:
        for text, names in dumped(folder):
            tally.add(text, names)
    operators = traced(options.ops, dtypes, samples) if not options.no_trace else iter(())
    for n, (operator, programs) in enumerate(operators):
        if checker.late:
            tally.totals["operators left for lack of time"] += 1
            continue
        if options.changed and not same and n % OPERATORS:
            continue
        modules = programs()
        mark = fingerprint([m.text for m in modules if m.quick])
        if options.changed and same and known.get(operator) == mark:
            tally.totals["operators as recorded"] += 1
            continue
        verdicts = [tally.add(m.text, m.ops) for m in modules]
        if all(verdicts):
            accepted[operator] = mark
    results.save()
    tally.show()
    if checker.late:
        print("not all was checked: no summary is written; what was checked is kept")
    elif not options.changed and not options.ops:
        table = {
            op: {k: dict(v) for k, v in sorted(rows.items())} for op, rows in tally.ops.items()
        }
        about = {
            "compiler": compiler,
            "modules": dict(tally.totals),
            "ops": dict(sorted(table.items())),
            "programs": accepted,
        }
        options.summary.write_text(json.dumps(about, indent=1) + "\n")
    return int(not tally.passed)


if __name__ == "__main__":
    sys.exit(main())
