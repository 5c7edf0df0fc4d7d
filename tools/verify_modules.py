#!/usr/bin/env python3
"""Have jaxlib's StableHLO parser and verifier read every module in a folder.

Modules are what TORCH_TPU_DUMP_DIR receives while a test or a program runs:

    TORCH_TPU_DUMP_DIR=modules pytest tests/ops && python tools/verify_modules.py modules

The exit code is 1 when a module is refused. The last line is "N passed, N failed".
"""

import argparse
import pathlib
import sys


def main() -> int:
    """Verify the modules of the folder given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder

    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    passed = failed = 0
    with mlir.make_ir_context():
        for path in sorted(folder.glob("*.mlir")):
            try:
                ir.Module.parse(path.read_text()).operation.verify()
                passed += 1
            except Exception as error:
                failed += 1
                print(f"{path.name}: {str(error).splitlines()[0]}", file=sys.stderr)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
