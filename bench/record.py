"""What the recorder costs, as multiples of one `torch.add` of 16 floats on the CPU.

Everything runs interleaved in one process, since machines drift: a round times each part once, and
a figure is the median of the rounds' ratios.

| part | what is timed | bound |
|---|---|---|
| record | `x = torch.add(x, b)` in fused mode, 100 times, no flush | 2 |
| strict | `torch.add(a, b)` in strict mode with its launch, 200 times and one wait | 8 |
| flush | the flush of a window of 100 such ops whose program is in memory, less the plugin's own
  launch: the same executable on the same buffers called through PJRT alone, results released | 28 |

    python bench/record.py            # prints, and appends to bench/history.jsonl
    python bench/record.py --dry      # prints only
"""

import argparse
import gc
import json
import platform
import statistics
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from torch_tpu import _C, debug
from torch_tpu.mode import EagerMode, set_eager_mode

HISTORY = Path(__file__).parent / "history.jsonl"
BOUNDS = {"record": 2.0, "strict": 8.0, "flush": 28.0}
OPS = 100


def chain(x: torch.Tensor, b: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = torch.add(x, b)
    return x


def seconds(f, *args) -> float:
    start = time.perf_counter()
    f(*args)
    return time.perf_counter() - start


class Bench:
    def __init__(self) -> None:
        self.a, self.b = torch.randn(16), torch.randn(16)
        self.ta, self.tb = self.a.to("tpu"), self.b.to("tpu")

    def cpu(self) -> float:
        return seconds(chain, self.a, self.b, 1000) / 1000

    def record_and_flush(self) -> tuple[float, float, float]:
        """Seconds to record an op, to flush a window of them, and of the plugin's part of it.

        A launch after a pause costs more than one in a tight loop, since the plugin's threads fall
        asleep: the two are therefore timed in turn, each after recording a window.
        """
        record, flush, launch = [], [], []
        with set_eager_mode(EagerMode.DEFER_AND_FUSE):
            for turn in range(40):
                start = time.perf_counter()
                x = chain(self.ta, self.tb, OPS)
                record.append(time.perf_counter() - start)
                if turn % 2:
                    flush.append(seconds(_C.flush, 0))
                    del x
                else:
                    launch.append(_C.time_launch(0, 1))
                    del x
                    _C.flush(0)  # drops the window: nobody needs its results
                torch.tpu.synchronize()
        return statistics.median(record) / OPS, statistics.median(flush), statistics.median(launch)

    def strict(self) -> float:
        def run() -> None:
            for _ in range(200):
                torch.add(self.ta, self.tb)
            torch.tpu.synchronize()

        with set_eager_mode(EagerMode.DEFER_NEVER):
            return seconds(run) / 200


def measure(rounds: int) -> dict[str, float]:
    torch.set_num_threads(1)
    bench = Bench()
    with torch.no_grad():
        for _ in range(3):  # compiles, and fills the caches
            bench.cpu(), bench.record_and_flush(), bench.strict()
        before = debug.compile_count()
        rows = []
        gc.disable()
        for _ in range(rounds):
            unit = bench.cpu()
            record, flush, launch = bench.record_and_flush()
            strict = bench.strict()
            unit = (unit + bench.cpu()) / 2
            rows.append((unit, launch, record, strict, flush - launch))
        gc.enable()
    assert debug.compile_count() == before, "the measured windows were not in the cache"
    result = {
        "cpu_add_ns": statistics.median(r[0] for r in rows) * 1e9,
        "launch_us": statistics.median(r[1] for r in rows) * 1e6,
    }
    for i, name in enumerate(BOUNDS, 2):
        result[name] = statistics.median(r[i] / r[0] for r in rows)
    return result


def machine() -> str:
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return f"{line.split(':')[1].strip()} x{torch.multiprocessing.cpu_count()}"
    return f"{platform.machine()} x{torch.multiprocessing.cpu_count()}"


def commit() -> str:
    folder = Path(__file__).parent
    run = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    return subprocess.run(run, capture_output=True, text=True).stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--dry", action="store_true", help="do not append to the history")
    args = parser.parse_args()
    result = measure(args.rounds)
    unit = result["cpu_add_ns"]
    print(f"torch.add of 16 floats on the CPU: {unit:.0f} ns; launch of the plugin alone: "
          f"{result['launch_us']:.1f} us")  # fmt: skip
    for name, bound in BOUNDS.items():
        mark = "ok" if result[name] <= bound else "OVER"
        print(f"{name:8} {result[name]:6.2f} x  ({result[name] * unit / 1000:.2f} us)  "
              f"bound {bound:g} x  {mark}")  # fmt: skip
    if not args.dry:
        row = {
            "bench": "record",
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "commit": commit(),
            "machine": machine(),
            "torch": torch.__version__,
            **{k: round(v, 3) for k, v in result.items()},
        }
        with open(HISTORY, "a") as out:
            out.write(json.dumps(row) + "\n")
    return int(any(result[name] > bound for name, bound in BOUNDS.items()))


if __name__ == "__main__":
    raise SystemExit(main())
