"""Check who includes whom in src/ (ARCHITECTURE.md, "Layers").

A file may include its own layer and the layers listed for it, written as "layer/file.h". torch is
seen by bridge, dist and python only, and never through <torch/extension.h>, which costs 30 s a
file. The PJRT header is seen by pjrt only. Prints one line per fault; exit code 1 if there is any.
"""

import re
import sys
from pathlib import Path

# Layer -> layers below it that it may include.
LAYERS: dict[str, set[str]] = {
    "base": set(),
    "hlo": {"base"},
    "pjrt": {"base"},
    "ops": {"hlo", "base"},
    "aten": {"ops", "hlo", "base"},
    "trace": {"ops", "hlo", "base"},
    "ahead": {"pjrt", "base"},
    "package": {"pjrt", "base"},
    "run": {"package", "pjrt", "base"},
    "runtime": {"trace", "ops", "hlo", "pjrt", "base"},
    "bridge": {"runtime", "trace", "ops", "hlo", "pjrt", "base"},
    "dist": {"bridge", "runtime", "trace", "ops", "hlo", "pjrt", "base"},
    "python": {"dist", "bridge", "runtime", "trace", "ops", "hlo", "pjrt", "base"},
}
# Single files of other layers that a layer may include all the same.
EXCEPTIONS = {("bridge", "aten/all.h")}
SEES_TORCH = {"bridge", "dist", "python"}
TORCH = re.compile(r"(torch|ATen|c10|caffe2|pybind11|Python\.h)(/|$)")
BANNED = {"torch/extension.h", "torch/all.h", "torch/torch.h"}
PJRT = re.compile(r"(.*/)?pjrt_c_api(_.*)?\.h$|xla/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def faults(source: Path, root: Path) -> list[str]:
    """One line for each include of `source` that its layer must not have."""
    layer = source.relative_to(root).parts[0]
    if layer not in LAYERS:
        return [f"{source}: {layer} is no layer; the layers are {', '.join(LAYERS)}"]
    text = source.read_text()
    found = []
    for match in INCLUDE.finditer(text):
        quote, header = match.groups()
        where = f"{source}:{text.count(chr(10), 0, match.start(1)) + 1}: {header}: "
        if header in BANNED:
            found.append(where + "costs 30 s a file; include the headers that are used")
        elif TORCH.match(header):
            if layer not in SEES_TORCH:
                found.append(where + f"{layer} must not see torch or Python")
        elif PJRT.match(header):
            if layer != "pjrt":
                found.append(where + "only pjrt sees the PJRT header")
        elif quote == '"':
            target = header.split("/")[0]
            if "/" not in header or target not in LAYERS:
                found.append(where + 'write "<layer>/<file>.h"')
            elif not (root / header).exists():
                found.append(where + "no such file")
            elif target not in {layer, *LAYERS[layer]} and (layer, header) not in EXCEPTIONS:
                found.append(where + f"{layer} must not include {target}")
    return found


def main() -> int:
    """Check every source below src/."""
    root = Path(__file__).resolve().parent.parent / "src"
    sources = sorted([*root.rglob("*.h"), *root.rglob("*.cpp")])
    found = [line for source in sources for line in faults(source, root)]
    print("\n".join(found or [f"layers: {len(sources)} files, no fault"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
