#!/usr/bin/env python3
"""Which declared ops do the tests lower? Those of a folder that TORCH_TPU_DUMP_DIR received.

    TORCH_TPU_DUMP_DIR=modules pytest tests && python tools/op_hits.py modules

Every compiled module begins with the ops that it was made of. Exit code 1 when an op that is
declared is in no module; the last line is "N of M declared ops".
"""

import argparse
import sys
from pathlib import Path

from tpu_check import dumped

from torch_tpu import _C


def main() -> int:
    """Print the ops that no module has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    found = {name for _, names in dumped(parser.parse_args().folder) for name in names}
    declared = sorted(str(row["name"]) for row in _C.ops())
    missing = [name for name in declared if name not in found]
    for name in missing:
        print(name)
    print(f"{len(declared) - len(missing)} of {len(declared)} declared ops")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
