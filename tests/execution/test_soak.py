"""A long training loop keeps what it has: no memory of the host or the device, no program.

python tests/execution/test_soak.py --steps 10000
"""

import argparse
import gc

import torch
import torch.nn.functional as F
from torch import nn

from torch_tpu import cache, debug
from torch_tpu.mode import EagerMode, set_eager_mode


def resident_bytes() -> int:
    with open("/proc/self/status") as status:
        line = next(each for each in status if each.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


class Loop:
    """Dropout, changing learning rate and batches, rows by number, a loss that is read at times."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 5)
        self.model = nn.Sequential(*layers).to("tpu")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9999)
        self.data = torch.randn(64, 8, 16).to("tpu")
        self.labels = torch.randint(0, 5, (64, 8)).to("tpu")
        self.step_count, self.total = 0, torch.zeros((), device="tpu")

    def run(self, steps: int) -> None:
        for _ in range(steps):
            k = self.step_count % 64
            loss = F.cross_entropy(self.model(self.data[k]), self.labels[k])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            self.total += loss.detach()
            self.step_count += 1
            if self.step_count % 50 == 0:
                assert torch.isfinite(self.total).item()

    def state(self) -> dict[str, int]:
        torch.tpu.synchronize()
        gc.collect()
        stats = cache.stats()
        return {
            "device bytes": torch.tpu.memory_allocated(),
            "programs": stats["memory_entries"],
            "call types": stats["call_types"],
            "compiles": debug.counters()["compiles"],
        }


def soak(steps: int) -> int:
    """Growth of the resident memory, in bytes, over the second half; all else must not grow."""
    with set_eager_mode(EagerMode.DEFER_AND_FUSE):
        loop = Loop()
        loop.run(200)
        before = loop.state()
        loop.run(steps // 2)
        middle = resident_bytes()
        loop.run(steps - steps // 2)
        assert loop.state() == before
        return resident_bytes() - middle


def test_a_long_loop_keeps_what_it_has():
    # A step records 60 ops: had each left a byte behind, it were more.
    assert soak(1000) < 4 << 20


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10000)
    print(f"resident memory grew by {soak(parser.parse_args().steps) / 1024:.0f} KiB")
