"""Peers in processes of their own, run in turn.

A benchmark calls itself with `--serve` to be a peer: it builds a workload, says how long its first
call took, and then runs repetitions when it is told to. Rounds go through the peers in turn, since
shared machines drift; a figure is the median over the rounds of the ratio to the same round of
another peer.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

HISTORY = Path(__file__).resolve().parent / "history.jsonl"


def serve(run, finish=lambda: None) -> None:
    """Reads numbers of repetitions, writes seconds a repetition; first those of the first call."""
    start = time.perf_counter()
    run()
    print(time.perf_counter() - start, flush=True)
    for line in sys.stdin:
        n = int(line)
        start = time.perf_counter()
        for _ in range(n):
            run()
        finish()
        print((time.perf_counter() - start) / n, flush=True)


def jax_environment() -> dict[str, str]:
    """Variables that lead JAX to the plugin that torch_tpu uses."""
    from torch_tpu import _C

    plugin = f"plugin:{_C.plugin_info()['path']}"
    return {"PJRT_NAMES_AND_LIBRARY_PATHS": plugin, "JAX_PLATFORMS": "plugin"}


class Peer:
    """A process that serves; `first` is the seconds of its first call."""

    def __init__(self, script: str, arguments: list[str], variables: dict[str, str], python: str):
        self.process = subprocess.Popen(
            [python, script, "--serve", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | variables,
        )
        self.first = self._number()

    def _number(self) -> float:
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise RuntimeError(self.process.communicate()[1][-2000:])
        return float(line)

    def run(self, times: int) -> float:
        self.process.stdin.write(f"{times}\n")  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]
        return self._number()

    def end(self) -> None:
        self.process.communicate()


def compare(peers: dict[str, Peer], times: int, rounds: int, own: list[str]) -> dict:
    """A row: microseconds a repetition, seconds of first calls, ratios of `own` to the others."""
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for turn in range(rounds + 2):
        for name, peer in peers.items():
            took = peer.run(times)
            if turn >= 2:
                seconds[name].append(took)
    for peer in peers.values():
        peer.end()
    row: dict = {"us": {n: statistics.median(t) * 1e6 for n, t in seconds.items()}}
    row["first_s"] = {n: p.first for n, p in peers.items()}
    for name in own:
        for other in peers:
            if name == other or name not in peers:
                continue
            pairs = zip(seconds[name], seconds[other], strict=True)
            prefix = "" if own == [name] else f"{name} "
            row[f"{prefix}of {other}"] = statistics.median(a / b for a, b in pairs)
            row[f"first, {prefix}of {other}"] = peers[name].first / peers[other].first
    return row


def tell(row: dict) -> None:
    us = ", ".join(f"{n} {t:.0f} us" for n, t in row["us"].items())
    first = ", ".join(f"{n} {t:.2f} s" for n, t in row["first_s"].items())
    ratios = ", ".join(f"{k} {v:.2f}" for k, v in row.items() if "of " in k)
    print(f"{row['work']}: {us}\n  first call: {first}\n  {ratios}", flush=True)


def keep(bench: str, rows: list[dict]) -> None:
    record = {"bench": bench, "at": datetime.now(UTC).isoformat(timespec="seconds"), "rows": rows}
    with open(HISTORY, "a") as f:
        f.write(json.dumps(record) + "\n")
