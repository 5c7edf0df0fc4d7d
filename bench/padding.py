"""What programs for many sizes cost, against a program for each size (docs/adr/0023).

A decoder of 4 layers, width 256, forward, batch 2: 40 lengths one after the other, then single
lengths again and again. Prints programs, seconds, and the ratio of padded to exact calls.

    python bench/padding.py
"""

import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

from torch_tpu import _C

LENGTHS = [3 + 37 * i % 120 for i in range(40)]
WIDTH, HEADS, LAYERS = 256, 4, 4


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, WIDTH)
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                [
                    nn.LayerNorm(WIDTH),
                    nn.Linear(WIDTH, 3 * WIDTH),
                    nn.Linear(WIDTH, WIDTH),
                    nn.LayerNorm(WIDTH),
                    nn.Linear(WIDTH, 4 * WIDTH),
                    nn.Linear(4 * WIDTH, WIDTH),
                ]
            )
            for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, 1000)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        batch, n = ids.shape
        x = self.embed(ids)
        for norm1, qkv, out, norm2, up, down in self.blocks:
            q, k, v = (
                t.view(batch, n, HEADS, -1).transpose(1, 2) for t in qkv(norm1(x)).chunk(3, -1)
            )
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + out(a.transpose(1, 2).reshape(batch, n, WIDTH))
            x = x + down(F.gelu(up(norm2(x))))
        return self.head(x)


def seconds(f, ids) -> float:
    start = time.perf_counter()
    f(ids).sum().item()
    return time.perf_counter() - start


@torch.no_grad()
def main() -> None:
    model = Decoder().to("tpu").eval()
    padded = torch.compile(model, dynamic=True)
    exact = torch.compile(lambda ids: model(ids), dynamic=True, options={"pad_sizes": False})
    batches = {n: torch.randint(1000, (2, n)).to("tpu") for n in sorted(set(LENGTHS))}
    for name, f in (("padded", padded), ("exact", exact)):
        before, start = _C.counters()["compiles"], time.perf_counter()
        for n in LENGTHS:
            f(batches[n])
        torch.tpu.synchronize()
        took, programs = time.perf_counter() - start, _C.counters()["compiles"] - before
        print(f"{name}: {programs} programs, {took:.1f} s for {len(LENGTHS)} lengths")
    for n in (8, 30, 40, 60, 90, 120):
        if n not in batches:
            n = min(batches, key=lambda m: abs(m - n))
        ratios = []
        for _ in range(30):
            ratios.append(seconds(padded, batches[n]) / seconds(exact, batches[n]))
        print(f"length {n}: padded / exact = {statistics.median(ratios[5:]):.2f}")


if __name__ == "__main__":
    main()
