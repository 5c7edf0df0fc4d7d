"""Eager modes against their peers, interleaved in one run: no compile call anywhere.

    python bench/eager.py                           # all workloads
    python bench/eager.py --work chain mlp --dry    # some; append nothing to bench/history.jsonl
    python bench/eager.py --xla PYTHON              # with torch-xla, of another environment
    python bench/eager.py --warm                    # first calls with a cache on disk
    python bench/eager.py --memory                  # the most memory that a process holds

First calls are cold: no cache of programs is read or written. `--warm` starts a second process of
the same workload with the first one's cache on disk instead and compares their first calls.
`--memory` compares what a fused process, whose programs come from disk, and one of plain PyTorch
grow by at most while they build the workload and run it four times.

| peer | what runs |
|---|---|
| fused, strict | the eager modes of tpu, the embedded CPU plugin |
| jax | `jax.jit` of the same computation written in JAX, on the same plugin |
| cpu | plain PyTorch on the CPU |
| xla | torch-xla, lazy, with its own XLA for the CPU |

Workloads: workloads.py. `chain` has no peer in JAX: it is what an op costs from Python.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import peers as benchmark
from workloads import jax_work, torch_work

WORK = ("chain", "mlp", "llama", "lm", "decode")
PEERS = ("fused", "strict", "jax", "cpu", "xla")
# Repetitions of a round.
TIMES = {"chain": 20, "mlp": 5, "llama": 5, "lm": 2, "decode": 32}
WITHOUT_JAX = ("chain", "lm")
MODES = {"fused": "1", "strict": "0"}


def serve(peer: str, work: str) -> None:
    if peer == "jax":
        return benchmark.serve(jax_work(work))
    kind = peer if peer in ("cpu", "xla") else "tpu"
    benchmark.serve(torch_work(work, kind, lambda f: f))


def resident(field: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) << 10


def serve_memory(peer: str, work: str) -> None:
    """Prints by how many bytes the process grew at most."""
    import torch

    kind = "cpu" if peer == "cpu" else "tpu"
    (torch.ones(2).to(kind) + 1).cpu()
    before = resident("VmRSS")
    run = torch_work(work, kind, lambda f: f)
    for _ in range(4):
        run()
    print(resident("VmHWM") - before)


def memory(work: str) -> dict:
    row = {"work": work}
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"TORCH_TPU_CACHE_DIR": folder, "TORCH_TPU_DEFER_AND_FUSE": "1"}
        for peer in ("fused", "fused", "cpu"):  # the first fills the cache
            done = subprocess.run(
                [sys.executable, __file__, "--serve-memory", peer, work],
                capture_output=True,
                text=True,
                check=True,
                env=env,
            )
            row[f"{peer}_mib"] = int(done.stdout) / 2**20
    return row


def start(peer: str, work: str, python: str, cache: str) -> benchmark.Peer:
    env = {"TORCH_TPU_DISK_CACHE": "0" if not cache else "1", "TORCH_TPU_CACHE_DIR": cache}
    if peer in MODES:
        env["TORCH_TPU_DEFER_AND_FUSE"] = MODES[peer]
    if peer == "jax":
        env |= benchmark.jax_environment()
    if peer == "xla":
        env |= {"PJRT_DEVICE": "CPU"}
    return benchmark.Peer(__file__, [peer, work], env, python)


def compare(work: str, names: list[str], rounds: int, xla: str | None) -> dict:
    peers = {}
    for name in names:
        if (name == "xla" and not xla) or (name == "jax" and work in WITHOUT_JAX):
            continue
        try:
            peers[name] = start(name, work, xla if name == "xla" and xla else sys.executable, "")
        except RuntimeError as error:
            print(f"  {name} failed: {error}", file=sys.stderr)
    own = [name for name in MODES if name in peers]
    return {"work": work} | benchmark.compare(peers, TIMES[work], rounds, own)


def warm(work: str) -> dict:
    """First calls of fused mode without and with a cache on disk, in seconds, and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        cold = start("fused", work, sys.executable, folder)
        cold.run(3)  # a window is compiled as one program when it comes for the second time
        cold.end()
        second = start("fused", work, sys.executable, folder)
        second.end()
    return {"work": work, "cold_s": cold.first, "warm_s": second.first}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--xla", metavar="PYTHON", default=os.environ.get("PY_XLA"))
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--serve-memory", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(*args.serve)
    if args.serve_memory:
        return serve_memory(*args.serve_memory)
    rows = []
    for work in args.work:
        if args.warm:
            row = warm(work)
            print(
                f"{work}: first call {row['cold_s']:.2f} s, with a cache {row['warm_s']:.2f} s, "
                f"{row['warm_s'] / row['cold_s']:.2f}"
            )
        elif args.memory:
            row = memory(work)
            fused, cpu = row["fused_mib"], row["cpu_mib"]
            print(f"{work}: fused {fused:.0f} MiB, cpu {cpu:.0f} MiB, {fused / cpu:.2f}")
        else:
            row = compare(work, args.peers, args.rounds, args.xla)
            benchmark.tell(row)
        rows.append(row)
    if not args.dry:
        benchmark.keep("eager", rows)


if __name__ == "__main__":
    main()
