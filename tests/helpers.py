"""Small functions that several test files use."""

import os
import subprocess
import sys
import textwrap
from typing import Any

import torch
from torch.utils import _pytree as pytree


def run_python(code: str, *, ok: bool = True, timeout: float = 240, **env: str | None) -> str:
    """Run `code` in a new interpreter and give its stdout; None in `env` unsets a variable.

    With `ok` it must end with 0 and leave stderr empty; without, it must fail, and its stderr is
    given.
    """
    full = {**os.environ, **{k: v for k, v in env.items() if v is not None}}
    for name in (k for k, v in env.items() if v is None):
        full.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=full,
        cwd=os.path.expanduser("~"),
    )
    if ok:
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.stderr == "", done.stderr
        return done.stdout
    assert done.returncode != 0, done.stdout
    return done.stderr


def copied(tree: Any, device: str = "cpu") -> Any:
    """Arguments whose tensors are new ones on `device`."""
    return pytree.tree_map_only(torch.Tensor, lambda x: x.detach().clone().to(device), tree)


def same(got: torch.Tensor, want: torch.Tensor, **tolerance: float) -> None:
    """`got` is on the device and equals `want`, which is on the CPU: dtype, shape, values."""
    assert got.device.type == "tpu"
    torch.testing.assert_close(got.detach().cpu(), want.detach(), equal_nan=True, **tolerance)


def exact(got: torch.Tensor, want: torch.Tensor) -> None:
    """As `same`, bit for bit."""
    same(got, want, rtol=0, atol=0)
