#!/usr/bin/env python3
"""Choose the samples of PyTorch's operator database that the test suite runs.

    python tools/choose_samples.py        writes tests/ops/samples.json

The first sample of each operator, and every other one whose program has a declared op that no
sample before had, forward and backward. Programs are traced on placeholders; nothing is compiled.
Which samples there are depends on PyTorch's release: run it again with a new one.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests" / "ops" / "samples.json"
MOST = 60  # samples of an operator that are looked at


def main() -> int:
    """Choose, write, and print what no sample has."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from tpu_check import ops_in, program_of

    from torch_tpu import _C

    warnings.simplefilter("ignore")
    seen: set[str] = set()
    chosen: dict[str, list[int]] = {}
    database: list[Any] = op_db
    for number, op in enumerate(database):
        dtype = torch.float32 if op.supports_dtype(torch.float32, "cpu") else torch.int64
        if not op.supports_dtype(dtype, "cpu"):
            continue
        grad = dtype is torch.float32 and op.supports_autograd
        torch.manual_seed(0)
        picked = []
        for n, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad)):
            if n == MOST:
                break
            found = ops_in("".join(program_of(op, sample, grad)))
            if n == 0 or found - seen:
                picked.append(n)
            seen |= found
        if len(picked) > 1:
            chosen[str(number)] = picked
    about = {"torch": torch.__version__.split("+")[0], "samples": chosen}
    TARGET.write_text(json.dumps(about) + "\n")
    declared = {str(row["name"]) for row in _C.ops()}
    for name in sorted(declared - seen):
        print(name)
    extra = sum(len(picked) - 1 for picked in chosen.values())
    print(f"{len(declared & seen)} of {len(declared)} declared ops, {extra} samples more than one")
    return 0


if __name__ == "__main__":
    sys.exit(main())
