"""Compiled programs against their peers, interleaved in one run.

    python bench/compile.py                      # all workloads, against jax.jit, Inductor, eager
    python bench/compile.py --work mlp bert      # some
    python bench/compile.py --dry                # append nothing to bench/history.jsonl

First calls are cold: no cache of programs is read or written (peers.py, workloads.py).

| peer | what runs |
|---|---|
| tpu | `torch.compile` on tpu, the embedded CPU plugin |
| jax | `jax.jit` of the same computation written in JAX, on the same plugin |
| inductor, eager | `torch.compile` and plain PyTorch on the CPU |

The workload tiny compares a compiled function of one op with one `torch.add` on the CPU.
"""

import argparse
import statistics
import sys
import tempfile

import peers as benchmark
from workloads import jax_work, torch_work

WORK = ("mlp", "resnet", "bert", "llama", "decode", "tiny")
PEERS = ("tpu", "jax", "inductor", "eager")
# Repetitions of a round.
TIMES = {"mlp": 5, "resnet": 2, "bert": 2, "llama": 5, "decode": 20, "tiny": 300}


def serve(peer: str, work: str) -> None:
    if peer == "jax":
        return benchmark.serve(jax_work(work))
    import torch

    kind = "tpu" if peer == "tpu" else "cpu"
    run = torch_work(work, kind, (lambda f: f) if peer == "eager" else torch.compile)
    if kind == "tpu" and work == "tiny":
        return benchmark.serve(run, torch.tpu.synchronize)
    return benchmark.serve(run)


def compare(work: str, names: list[str], rounds: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        env = {"TORCH_TPU_DISK_CACHE": "0", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
        env["TORCHINDUCTOR_CACHE_DIR"] = folder
        peers = {}
        for name in names:
            more = benchmark.jax_environment() if name == "jax" else {}
            try:
                peers[name] = benchmark.Peer(__file__, [name, work], env | more, sys.executable)
            except RuntimeError as error:
                print(f"  {name} failed: {error}", file=sys.stderr)
        return {"work": work} | benchmark.compare(peers, TIMES[work], rounds, ["tpu"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(*args.serve)
    rows = []
    for work in args.work:
        rows.append(compare(work, args.peers, args.rounds))
        benchmark.tell(rows[-1])
    steady = [r["of jax"] for r in rows if "of jax" in r and r["work"] != "tiny"]
    if steady:
        print(f"of jax, geometric mean: {statistics.geometric_mean(steady):.3f}")
    if not args.dry:
        benchmark.keep("compile", rows)


if __name__ == "__main__":
    main()
