"""`python -m torch_tpu.run MODEL.tpt2 INPUT.npz [OUTPUT.npz]`: a package, by the C++ program.

It takes the place of this process, on the plugin that `tpu` would use; `torch_tpu_run` itself needs
no Python (`program` tells where it lies).
"""

import os
import sys
from pathlib import Path

from torch_tpu import _C
from torch_tpu._programs import program_path

PLUGIN = "TORCH_TPU_PJRT_PLUGIN"


def program() -> Path:
    """The path of torch_tpu_run. Raises RuntimeError where the package was built without it."""
    return program_path("torch_tpu_run")


def main() -> int:
    """Become torch_tpu_run with the arguments of the command line."""
    try:
        path = program()
        os.environ.setdefault(PLUGIN, _C.plugin_path())
    except RuntimeError as error:
        print(f"torch_tpu.run: {error}", file=sys.stderr)
        return 1
    sys.stdout.flush()
    os.execv(path, [str(path), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
