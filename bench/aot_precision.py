#!/usr/bin/env python3
"""Estimated cycles of float32 products in one, three and six passes, ours and JAX's.

    python bench/aot_precision.py [-t v6e:1x1] [--only NAME] [--no-jax] [--json FILE]

Each case is written plainly in PyTorch and in JAX and compiled by libtpu at the three precisions;
nothing runs. A product alone rises 1 : 3 : 6 where the matrix unit is what it waits for; with other
work beside it (a softmax, memory) it rises less, and then JAX's must rise no more than ours.
*Backward* is the gradients' products alone: those of a given gradient of the result.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import torch
import torch.nn.functional as F
from torch import nn

from torch_tpu.aot import _chips, _compiler, _hlo, _trace

ROOT = Path(__file__).resolve().parent.parent
PRECISIONS = {"medium": "default", "high": "high", "highest": "highest"}


def empty(*sizes: int, grad: bool = False) -> torch.Tensor:
    return torch.empty(sizes, device="meta", requires_grad=grad)


def empties(size: tuple[int, ...], count: int, grad: bool = False) -> tuple[torch.Tensor, ...]:
    # One tensor given twice would be one argument of the program.
    return tuple(empty(*size, grad=grad) for _ in range(count))


@dataclass
class Case:
    """A PyTorch function and its arguments; the JAX function of the same arguments' shapes."""

    ours: Callable[..., Any]
    args: tuple[Any, ...]
    jax: str
    shapes: tuple[tuple[int, ...], ...]
    backward: bool = False


def linear(inner: int, outer: int) -> nn.Module:
    return nn.Linear(inner, outer, bias=False, device="meta")


def einsum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.einsum("ij,kj->ki", a, b)


def backward(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Gradients of all that `function` is given; the last argument is the one of its result."""

    def of(*args: Any) -> Any:
        *inputs, gradient = args
        leaves = [p for i in inputs for p in (i.parameters() if isinstance(i, nn.Module) else (i,))]
        with torch.enable_grad():
            return torch.autograd.grad(function(*inputs), leaves, gradient)

    return of


# Each case but attention multiplies as often as the square product: 2 * 4096 ** 3 flops.
N, HEADS = 4096, (4, 8, 1024, 128)
SQUARE = ((N, N), (N, N))
IMAGE, KERNEL, FOUND = (32, 512, 32, 32), (512, 512, 3, 3), (32, 512, 30, 30)
# Twice the channels: bound by the matrix unit in one pass, too.
WIDE, WIDE_KERNEL, WIDE_FOUND = (16, 1024, 32, 32), (1024, 1024, 3, 3), (16, 1024, 30, 30)
CASES = {
    "matmul": Case(torch.mm, empties((N, N), 2), "matmul", SQUARE),
    "nn.Linear": Case(linear(N, N), (empty(N, N),), "linear", SQUARE),
    "nn.Linear, backward": Case(
        backward(lambda m, x: m(x)), (linear(N, N), empty(N, N, grad=True), empty(N, N)),
        "linear", SQUARE, True,
    ),
    "einsum": Case(einsum, empties((N, N), 2), "einsum", SQUARE),
    "einsum, backward": Case(
        backward(einsum), (*empties((N, N), 2, grad=True), empty(N, N)), "einsum", SQUARE, True
    ),
    "conv": Case(F.conv2d, (empty(*IMAGE), empty(*KERNEL)), "conv", (IMAGE, KERNEL)),
    "conv, backward": Case(
        backward(F.conv2d), (empty(*IMAGE, grad=True), empty(*KERNEL, grad=True), empty(*FOUND)),
        "conv", (IMAGE, KERNEL), True,
    ),
    "conv, 1024 channels, backward": Case(
        backward(F.conv2d),
        (empty(*WIDE, grad=True), empty(*WIDE_KERNEL, grad=True), empty(*WIDE_FOUND)),
        "conv", (WIDE, WIDE_KERNEL), True,
    ),
    "SDPA": Case(F.scaled_dot_product_attention, empties(HEADS, 3), "sdpa", (HEADS,) * 3),
    "SDPA, backward": Case(
        backward(F.scaled_dot_product_attention), (*empties(HEADS, 3, grad=True), empty(*HEADS)),
        "sdpa", (HEADS,) * 3, True,
    ),
}  # fmt: skip


def jax_text(case: Case, precision: str) -> str:
    """StableHLO of the same in JAX."""
    import jax
    import jax.numpy as jnp

    def sdpa(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)

    functions: dict[str, Callable[..., Any]] = {
        "matmul": lambda a, b: a @ b,
        "linear": lambda x, w: x @ w.T,
        "einsum": lambda a, b: jnp.einsum("ij,kj->ki", a, b),
        "conv": lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "VALID"),
        "sdpa": sdpa,
    }
    function = functions[case.jax]
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in case.shapes]
    if case.backward:
        inner = function
        shapes.append(jax.eval_shape(inner, *shapes))
        function = lambda *args: jax.vjp(inner, *args[:-1])[1](args[-1])  # noqa: E731
    with jax.default_matmul_precision(precision):
        lowered = jax.jit(function).trace(*shapes).lower(lowering_platforms=("tpu",))
    return str(lowered.as_text())


def cycles(text: str, topology: str) -> int:
    """The compiler's estimate, summed over instructions."""
    module = _hlo.parse(_compiler.compile_text(text, topology).texts["hlo"])
    return sum(i.cycles * times for i, times, _ in module.scheduled())


def ratios(row: list[int]) -> str:
    """1 : 2.7 : 5.9 (12,345)"""
    return " : ".join(f"{n / row[0]:.3g}" for n in row) + f" ({row[0]:,})"


def main() -> int:
    """Compare and print; exit code 1 where JAX's cycles are fewer by more than a twentieth."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("-t", "--topology", default="v6e:1x1")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--no-jax", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    topology, _ = _chips.normalize(options.topology)
    rows: dict[str, dict[str, list[int]]] = {}
    print("| case | ours: medium : high : highest (cycles of medium) | JAX |\n|---|---|---|")
    for name, case in CASES.items():
        if options.only not in name:
            continue
        row = rows[name] = {"ours": [], "jax": []}
        for ours, theirs in PRECISIONS.items():
            traced = _trace.trace(case.ours, case.args, precision_name=ours)
            row["ours"].append(cycles(traced.text.replace(f"{ROOT}/", ""), topology))
            if not options.no_jax:
                row["jax"].append(cycles(jax_text(case, theirs), topology))
        print(
            f"| {name} | {ratios(row['ours'])} | {ratios(row['jax']) if row['jax'] else ''} |",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return int(
        any(a > 1.05 * b for r in rows.values() for a, b in zip(r["ours"], r["jax"], strict=False))
    )


if __name__ == "__main__":
    sys.exit(main())
