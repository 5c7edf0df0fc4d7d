"""The C++ programs that lie in the package."""

from pathlib import Path

import torch_tpu


def program_path(name: str) -> Path:
    """Raises RuntimeError where the package was built without the program."""
    for folder in torch_tpu.__path__:
        path = Path(folder) / name
        if path.is_file():
            return path
    raise RuntimeError(f"torch_tpu was built without {name}; install it again")
