"""Write the generated pages of docs/: ops.md, settings.md, errors.md.

Ops and settings come from the installed build, error texts from running the snippets below. With
`--check` nothing is written; a page that differs is named and the exit code is 1.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from torch_tpu import _C

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TPU_CHECK = ROOT / "tools" / "tpu_check.json"
HEAD = "<!-- Written by tools/gen_docs.py; do not edit. -->"


def page(blocks: Iterable[str]) -> str:
    """Blocks with a blank line between them."""
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    columns = list(columns)
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = (str(cell).replace("|", "\\|").replace("\n", "<br>") for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


# -- ops.md ----------------------------------------------------------------------------------------

# Why a family of the CPU has no kernel; the first pattern that matches. Others: not written yet,
# and a fault of the page (tests/test_tools.py).
REASONS = (
    (r"_test_|_foobar$", "PyTorch's own tests"),
    (r"(_make_dep_token|from_file)$", "host only"),
    (r".*(mkldnn|for_cpu)", "a CPU library's own format"),
    (
        r"_to_sparse_(csc|bsr|bsc)|_validate_compressed|_spdiags|sspaddmm",
        "sparse layouts other than COO and CSR, and checks and makers of sparse tensors that "
        "run on the host: use the CPU, or .to_dense()",
    ),
    (
        r"_nested",
        "nested tensors of the strided layout, which PyTorch no longer extends: use "
        "`torch.nested` with `layout=torch.jagged`",
    ),
    (
        r".*(affine_quantized|quantized_tensor|quantized_(gru|lstm)|dyn_quant)"
        r"|(quantize|dequantize)",
        "tensors of quantized dtypes, which StableHLO has no counterpart of: use the integer and "
        "float8 products (`_int_mm`, `_weight_int8pack_mm`, `_weight_int4pack_mm`, `_scaled_mm`) "
        "and `fake_quantize`",
    ),
)
TAKES_ANY = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")


def family(name: str) -> str:
    """`add` for aten::add_.Tensor; names such as __iand__ stay."""
    base = name.split("::")[1].split(".")[0]
    return base if base.startswith("__") else base.rstrip("_") or base


def first_match(patterns: Iterable[tuple[str, str]], name: str, default: str) -> str:
    """The text of the first pattern that matches at the start of `name`."""
    return next((text for pattern, text in patterns if re.match(pattern, name)), default)


def has_kernel(name: str, key: str) -> bool:
    """Whether the op has a kernel of its own for a dispatch key."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def source_of(name: str) -> str:
    """The file that registered the device's kernel of an op."""
    dump = torch._C._dispatch_dump(name)
    found = re.search(r"^PrivateUse1: registered at \S*/(src/)?(\w+/\w+\.cpp):", dump, re.MULTILINE)
    return found.group(2) if found else ""


def users_of(text: str, folders: Iterable[str], but: str = "") -> list[str]:
    """Source files below src/ that hold `text`, as paths from src/."""
    src = ROOT / "src"
    found = (p for folder in folders for p in sorted((src / folder).glob("*.cpp")))
    return [str(p.relative_to(src)) for p in found if p.name != but and text in p.read_text()]


def verdict(counts: dict[str, int] | None) -> str:
    """A cell: what the compiler said of an op's modules."""
    if not counts:
        return ""
    total, accepted = sum(counts.values()), counts.get("ok", 0)
    if accepted == total:
        return "all"
    why = max((k for k in counts if k != "ok"), key=lambda k: counts[k])
    return f"{accepted} of {total}: {why}"


def runs_here(name: str) -> bool:
    """Whether an overload has a kernel of the device, or one that works on any."""
    return any(has_kernel(name, key) for key in ("PrivateUse1", *TAKES_ANY))


def lacking(text: str) -> list[str]:
    """Of the op names in backticks in `text`, those of which no overload runs natively.

    Some jagged nested tensors answer themselves, in Python.
    """
    from torch.nested._internal.ops import JAGGED_OPS_TABLE

    runs: dict[str, bool] = defaultdict(bool)
    for op in JAGGED_OPS_TABLE:
        runs[family(op.name())] = True
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::"):
            runs[family(name)] |= runs_here(name)
    named = {family(f"aten::{n}") for n in re.findall(r"`(\w+)`", text)}
    return sorted(n for n in named if n in runs and not runs[n])


def ops_page() -> str:
    """docs/ops.md."""
    defs = sorted(_C.ops(), key=lambda row: str(row["name"]))
    aten = [row for row in defs if row["name"].startswith("aten::")]
    derived = {name for row in aten for name in row["family"]}
    names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")]
    own = sorted({n for n in names if has_kernel(n, "PrivateUse1")} - derived)
    hand: dict[str, list[str]] = defaultdict(list)
    for name in own:
        hand[source_of(name)].append(name)

    cpu: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for name in names:
        if has_kernel(name, "CPU"):
            cpu[family(name)].append((name, runs_here(name)))
    missing = sorted(f for f, members in cpu.items() if not any(ok for _, ok in members))
    partial = sorted(n for f, rows in cpu.items() if f not in missing for n, ok in rows if not ok)

    out = [
        HEAD,
        "# Ops",
        'An op is declared once, as its lowering (ARCHITECTURE.md, "An op"); the in-place and '
        "`out=` forms of its\nschema family run on the same declaration. Composite ops of PyTorch "
        "need nothing here.",
        table(
            ("", "count"),
            (
                ("definitions of aten ops", str(len(aten))),
                ("families that they make", str(len({family(n) for n in derived}))),
                ("overloads that run on them", str(len(derived))),
                ("of the definitions, random", str(sum(bool(row["random"]) for row in aten))),
                ("overloads with a kernel written by hand", str(len(own))),
                ("ops of our own (`tpu::`)", str(len(defs) - len(aten))),
                (
                    f"families with a CPU kernel in torch {torch.__version__.split('+')[0]}",
                    str(len(cpu)),
                ),
                ("of these, none of whose overloads runs here", str(len(missing))),
            ),
        ),
        "**Layout**: how a result's strides follow from the inputs'. *row-major* always so, "
        "*elementwise* the common\norder of the inputs (TensorIterator's rule), *like self* those "
        "of the first tensor, *channels last* when the\nfirst tensor (or a weight) is, "
        "*column-major* matrices as LAPACK's, *like each* gradients like what they are of, *fft* "
        "the\ntransformed dims inside.",
        "## Declared",
    ]
    checked = json.loads(TPU_CHECK.read_text()) if TPU_CHECK.exists() else {"ops": {}}
    chips = sorted({chip for row in checked["ops"].values() for chip in row})
    if chips:
        modules = ", ".join(f"{k}: {n:,}" for k, n in checked["modules"].items())
        out.insert(
            -1,
            "**v5e**, **v5p**, **v6e**, **tpu7x**: what the compiler says of the modules that "
            "the op suite and PyTorch's\noperator database print for the definition "
            "(tools/tpu_check.py): *all* accepted, or how many of how many\nand why not; blank: "
            f"none was compiled for that chip. Modules: {modules}.",
        )
    by_file: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in aten:
        by_file[row["file"]].append(row)
    for file in sorted(by_file):
        rows = []
        for row in by_file[file]:
            others = sorted(set(row["family"]) - {row["name"]})
            shown = " ".join(f"`{n.removeprefix('aten::')}`" for n in others)
            mark = "random" if row["random"] else ""
            said = [verdict(checked["ops"].get(row["name"], {}).get(chip)) for chip in chips]
            rows.append((f"`{row['name']}`", shown, row["layout"], mark, *said))
        out.append(f"### src/{file}")
        out.append(table(("definition", "also runs", "layout", "", *chips), rows))

    out.append("## Written by hand")
    out.append(
        "Views, factories and copies; results whose size depends on data; ops whose schema does "
        "not say what they write."
    )
    by_hand = [
        (f"src/{file}", " ".join(f"`{n.removeprefix('aten::')}`" for n in hand[file]))
        for file in sorted(hand)
    ]
    out.append(table(("file", "overloads"), by_hand))

    out.append("## Our own")
    own_rows = [
        (
            f"`{row['name']}`",
            f"src/{row['file']}",
            ", ".join(users_of(f'"{row["name"]}"', ["bridge"])),
        )
        for row in defs
        if not row["name"].startswith("aten::")
    ]
    out.append(table(("op", "declared in", "called by"), own_rows))

    out.append("## Missing")
    out.append(
        "Families with a CPU kernel in PyTorch of which no overload runs here natively. They run "
        "on the CPU with one\nwarning, or raise: `torch_tpu.set_fallback`."
    )
    why: dict[str, list[str]] = defaultdict(list)
    for name in missing:
        why[first_match(REASONS, name, "not yet")].append(f"`{name}`")
    out.append(table(("why", "families"), ((k, " ".join(why[k])) for k in sorted(why))))
    if partial:
        listed = " ".join(f"`{n}`" for n in partial)
        out.append(f"Single overloads of other families that are missing: {listed}.")
    return page(out)


# -- settings.md -----------------------------------------------------------------------------------


def settings_page() -> str:
    """docs/settings.md."""
    rows = []
    layers = [p.name for p in (ROOT / "src").iterdir() if p.is_dir()]
    for row in _C.settings():
        kind = row["choices"].replace("|", ", ") if row["choices"] else row["type"]
        default = f"`{row['default']}`" if row["default"] != "" else "empty"
        used = users_of(f'("{row["name"]}")', layers)
        meaning = row["doc"] if used else f"{row['doc']} **(no effect yet)**"
        rows.append((f"`{row['env']}`", kind, default, meaning))
    return page(
        (
            HEAD,
            "# Settings",
            "Environment variables, each read once, when it is first needed; a value that is not "
            "understood is an error that\nsays what the variable takes. `python -m "
            "torch_tpu.info` shows what is in force. The table of the code is in\n"
            "src/base/settings.cpp.",
            table(("variable", "takes", "default", "meaning"), rows),
            "Also heeded: `TORCH_DEVICE_BACKEND_AUTOLOAD=0` (torch loads no backend by itself; "
            "then `import torch_tpu`\ndoes), `XLA_FLAGS` and `LIBTPU_INIT_ARGS` (the compiler's; "
            "part of the disk cache's key), `XDG_CACHE_HOME`.",
        )
    )


# -- errors.md -------------------------------------------------------------------------------------

# kind, meaning, environment, code. Each must raise; the last line of the code is the one that does.
SNIPPETS: tuple[tuple[str, str, dict[str, str], str], ...] = (
    (
        "invalid",
        "a wrong argument or state",
        {},
        'torch.ones(2, 3, device="tpu") @ torch.ones(4, 5, device="tpu")',
    ),
    ("invalid", "", {}, 'torch.ones(2, device="tpu") + torch.ones(2)'),
    ("index", "out of range", {}, 'torch.ones(2, 3, device="tpu").sum(2)'),
    (
        "index, late",
        "a value that only the device knows; raised at the next read or synchronization",
        {},
        """
        x = torch.arange(5.0, device="tpu")
        y = x[torch.tensor([1, 7], device="tpu")]
        y.cpu()
        """,
    ),
    (
        "type",
        "a wrong type of argument",
        {},
        "torch.tpu.set_eager_mode(2)",
    ),
    (
        "unsupported",
        "right, but this device cannot",
        {},
        'torch.ones(2, dtype=torch.complex32, device="tpu")',
    ),
    (
        "missing op",
        "no lowering, and `TORCH_TPU_FALLBACK=error`",
        {"TORCH_TPU_FALLBACK": "error"},
        'torch.ops.aten.quantize_per_tensor(torch.ones(2, device="tpu"), 1, 0, torch.qint8)',
    ),
    (
        "memory",
        "device memory is exhausted",
        {"TORCH_TPU_MEMORY_LIMIT": "64M"},
        """
        x = torch.ones(4096, 2048, device="tpu")
        y = x * 2
        z = x * 3
        """,
    ),
    (
        "memory, deferred",
        "what was recorded, and what made it run",
        {"TORCH_TPU_MEMORY_LIMIT": "64M", "TORCH_TPU_DEFER_AND_FUSE": "1"},
        """
        x = torch.ones(4096, 2048, device="tpu")
        y, z = x * 2, x * 3
        y.sum().item()
        """,
    ),
    (
        "device",
        "the plugin or the device failed",
        {"TORCH_TPU_PJRT_PLUGIN": "/no/such/plugin.so"},
        'torch.ones(2, device="tpu")',
    ),
    (
        "setting",
        "a variable that is not understood (kind invalid)",
        {"TORCH_TPU_CPU_DEVICE_COUNT": "many"},
        'torch.ones(2, device="tpu")',
    ),
)
RUN = """
import json, sys, linecache, warnings
import torch
out = []
for code in json.load(sys.stdin):
    linecache.cache["train.py"] = (len(code), None, code.splitlines(True), "train.py")
    try:
        exec(compile(code, "train.py", "exec"), {"torch": torch})
        out.append(["", ""])
    except Exception as error:
        out.append([type(error).__name__, str(error)])
json.dump(out, sys.stdout)
"""


def run_snippets() -> list[tuple[str, str]]:
    """Exception class and text of each snippet; one interpreter for each environment."""
    results: dict[int, tuple[str, str]] = {}
    groups: dict[str, list[int]] = defaultdict(list)
    for i, (_, _, env, _) in enumerate(SNIPPETS):
        groups[json.dumps(env)].append(i)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TORCH_TPU_")}
    for variables, members in groups.items():
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            input=json.dumps([textwrap.dedent(SNIPPETS[i][3]).strip() + "\n" for i in members]),
            capture_output=True,
            text=True,
            check=True,
            env={**clean, **json.loads(variables)},
        )
        for i, (kind, text) in zip(members, json.loads(done.stdout), strict=True):
            if not kind:
                raise SystemExit(f"a snippet of errors.md raised nothing:\n{SNIPPETS[i][3]}")
            results[i] = (kind, text)
    return [results[i] for i in range(len(SNIPPETS))]


def errors_page() -> str:
    """docs/errors.md."""
    out = [
        HEAD,
        "# Errors",
        "Every error of the backend has a kind (src/base/error.h), which decides the Python "
        "class. The text is: the op and\nits tensors, the reason with its values, the remedy. "
        "All texts below come from running the code above them.",
        table(
            ("kind", "Python class"),
            (
                ("invalid, device, internal", "`RuntimeError`"),
                ("index", "`IndexError`"),
                ("type", "`TypeError`"),
                ("unsupported, missing op", "`NotImplementedError`"),
                ("memory", "`torch.OutOfMemoryError`"),
            ),
        ),
        "An *internal* error is a fault of torch_tpu and says so; no code makes one on purpose.",
    ]
    for (kind, meaning, env, code), (name, text) in zip(SNIPPETS, run_snippets(), strict=True):
        if meaning:
            out.append(f"## {kind}: {meaning}")
        setting = " ".join(f"{k}={v}" for k, v in env.items())
        lines = [f"# {setting}"] if setting else []
        lines.append(textwrap.dedent(code).strip())
        shown = []
        for line in f"{name}: {text}".splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            shown += textwrap.wrap(line, 100, subsequent_indent=indent + "    ")
        out.append("```python\n" + "\n".join(lines) + "\n```\n```\n" + "\n".join(shown) + "\n```")
    return page(out)


PAGES: dict[str, Callable[[], str]] = {
    "ops.md": ops_page,
    "settings.md": settings_page,
    "errors.md": errors_page,
}


def main() -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if a page differs")
    parser.add_argument(
        "--lacking", metavar="FILE", help="print which op names in FILE's backticks do not run here"
    )
    parser.add_argument("pages", nargs="*", help=f"of {', '.join(PAGES)}; default: all")
    options = parser.parse_args()
    if options.lacking:
        names = lacking(Path(options.lacking).read_text())
        print(f"{len(names)} lacking", *names, sep="\n")
        return 0
    differ = []
    for name in options.pages or PAGES:
        text = PAGES[name]()
        path = DOCS / name
        if path.exists() and path.read_text() == text:
            continue
        differ.append(name)
        if not options.check:
            path.write_text(text)
    if options.check and differ:
        print(f"docs: {', '.join(differ)} differ; run python tools/gen_docs.py", file=sys.stderr)
        return 1
    print(f"docs: {len(differ)} written" if differ else "docs: as generated")
    return 0


if __name__ == "__main__":
    sys.exit(main())
