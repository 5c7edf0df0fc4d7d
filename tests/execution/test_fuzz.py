"""Random programs give the same in debug, strict and fused mode and on the CPU.

A program is a seed: a few tensors, then steps that compute, write in place and through views, draw
random numbers, differentiate, read values, or do what raises. In fused mode it is run twice: its
windows run op by op the first time and as one program each the second. Some programs run as two at
once, on two threads that share an input.

    python tests/execution/test_fuzz.py --programs 20000
"""

import argparse
import itertools
import random
import threading
import time

import pytest
import torch
import torch.nn.functional as F

from torch_tpu.mode import EagerMode, set_eager_mode

DEBUG, STRICT, FUSED = EagerMode
SIZES = 2, 3, 4


def less(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Not of numbers that are equal but for rounding: modes may differ in the last bit."""
    return torch.lt(a, b + 0.1234567)


class Program:
    """The steps of one seed, on one device. What it saw is in `log`."""

    def __init__(self, seed: int, device: str, shared: torch.Tensor) -> None:
        self.random = random.Random(seed)
        self.device = device
        self.log: list = []
        make = torch.Generator().manual_seed(seed)
        shapes = [tuple(self.random.choice(SIZES) for _ in range(2)) for _ in range(3)]
        self.live = [torch.randn(s, generator=make).to(device) for s in shapes] + [shared * 1]
        self.draws = torch.Generator(device).manual_seed(seed)

    def run(self) -> list:
        for _ in range(self.random.randint(6, 24)):
            step = self.random.choice(self.STEPS)
            step(self)
            self.live = self.live[-8:]
        self.log += [t.detach().cpu() for t in self.live]
        return self.log

    def pick(self) -> torch.Tensor:
        return self.random.choice(self.live)

    def keep(self, t: torch.Tensor) -> None:
        if t.numel() and t.dim():
            # Chains of products and exponentials would leave the range in which modes agree.
            self.live.append(t.clamp(-4, 4) if t.is_floating_point() else t.float())

    # ---- Steps.

    def unary(self) -> None:
        names = "sin tanh relu neg abs sigmoid square exp clone t softmax0 cumsum0 flip0"
        name, x = self.random.choice(names.split()), self.pick()
        if name == "t":
            self.keep(x.transpose(0, -1))
        elif name == "softmax0":
            self.keep(torch.softmax(x, 0))
        elif name.endswith("0"):
            self.keep(getattr(torch, name[:-1])(x, 0 if name != "flip0" else (0,)))
        else:
            self.keep(getattr(torch, name)(x))

    def binary(self) -> None:
        x, y = self.pick(), self.pick()
        f = self.random.choice([torch.add, torch.sub, torch.mul, torch.maximum, less])
        try:
            self.keep(f(x, y))
        except RuntimeError as e:  # shapes: the same on every device, and nothing else changes
            self.log.append(type(e).__name__)

    def number(self) -> None:
        n = self.random.choice([0, 1, -1, 0.5, 2.5, self.random.random()])
        self.keep(self.random.choice([torch.add, torch.mul, torch.sub])(self.pick(), n))

    def product(self) -> None:
        x, y = self.pick(), self.pick()
        if x.dim() == y.dim() == 2 and x.shape[1] == y.shape[0]:
            self.keep(x @ y)
        else:
            self.keep(x.sum(self.random.randrange(x.dim()), keepdim=True))

    def view(self) -> None:
        x = self.pick()
        choice = self.random.randrange(4)
        if choice == 0:
            self.live.append(x[self.random.randrange(x.shape[0])].unsqueeze(0))
        elif choice == 1:
            self.live.append(x.flatten() if x.is_contiguous() else x.mT if x.dim() > 1 else x)
        elif choice == 2:
            start = self.random.randrange(x.shape[0])
            self.live.append(x[start:])
        else:
            self.live.append(x.expand(2, *x.shape)[0])

    def write(self) -> None:
        x = self.pick()
        choice, n = self.random.randrange(6), self.random.randrange(-2, 3)
        if choice == 0:
            x.add_(n)
        elif choice == 1:
            x.mul_(0.5)
        elif choice == 2:
            x[self.random.randrange(x.shape[0])] = n
        elif choice == 3:
            x.copy_(self.pick().reshape(-1)[:1].expand_as(x).clone())
        elif choice == 4:
            x.masked_fill_(x > 1, n)
        else:
            torch.clamp(x, -1, 1, out=x)

    def choose(self) -> None:
        x = self.pick()
        index = torch.tensor([self.random.randrange(x.shape[0]) for _ in range(3)])
        self.keep(x[index.to(self.device)])

    def wrong_index(self) -> None:
        x = self.pick()
        with pytest.raises(IndexError):
            x[torch.tensor([x.shape[0] + 1]).to(self.device)].cpu()
        self.log.append("IndexError")

    def draw(self) -> None:
        x = self.pick()
        kind = self.random.randrange(3)
        if self.device == "cpu":  # another stream of numbers: modes are compared with each other
            self.live.append(torch.zeros(x.shape))
        elif kind == 0:
            self.live.append(torch.rand(x.shape, device=self.device, generator=self.draws))
        elif kind == 1:
            self.live.append(torch.empty(x.shape, device=self.device).normal_(generator=self.draws))
        else:
            p = torch.full(x.shape, 0.5, device=self.device)
            self.live.append(torch.bernoulli(p, generator=self.draws))

    def read(self) -> None:
        x = self.pick()
        self.log.append(x.detach().sum().cpu())

    def gradient(self) -> None:
        x = self.pick().detach().clone().requires_grad_()
        w = torch.full((x.shape[-1], 3), 0.25, device=self.device, requires_grad=True)
        loss = F.gelu(x @ w).square().mean() + x.tanh().sum()
        loss.backward()
        self.keep(x.grad)
        self.keep(w.grad)

    def forget(self) -> None:
        if len(self.live) > 2:
            self.live.pop(self.random.randrange(len(self.live)))

    STEPS = (unary, unary, binary, binary, number, product, view, view, write, write, choose)
    STEPS += (read, gradient, forget)


class WithDraws(Program):
    STEPS = (*Program.STEPS, Program.draw, Program.draw)


class WithErrors(Program):
    STEPS = (*Program.STEPS, Program.wrong_index)


def outcome(kind: type[Program], seed: int, device: str, threads: int) -> list:
    """The logs of `threads` programs that run at once."""
    shared = torch.linspace(-1, 1, 6).reshape(2, 3).to(device)
    mode = torch.tpu.eager_mode
    logs: list = [None] * threads

    def work(i: int) -> None:
        with set_eager_mode(mode):
            logs[i] = kind(seed + 1_000_003 * i, device, shared).run()

    if threads == 1:
        work(0)
    else:
        running = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
        for t in running:
            t.start()
        for t in running:
            t.join()
    assert all(log is not None for log in logs), "a thread ended with an error"
    return list(itertools.chain(*logs))


def equal(got: list, want: list, tolerance: float) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        if isinstance(w, str):
            assert g == w
        else:
            torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance, equal_nan=True)


def check(seed: int) -> None:
    kind = (Program, WithDraws, WithErrors)[seed % 3]
    # A late error of one thread may be told to the other: those run alone.
    threads = 2 if seed % 5 == 0 and kind is not WithErrors else 1
    results = {}
    for name, mode in ("debug", DEBUG), ("strict", STRICT), ("fused", FUSED), ("again", FUSED):
        torch.tpu.synchronize()
        with set_eager_mode(mode):
            results[name] = outcome(kind, seed, "tpu", threads)
    # An op is the same program in all of these; as one program it may round differently.
    equal(results["strict"], results["debug"], 0)
    equal(results["fused"], results["debug"], 2e-5)
    equal(results["again"], results["debug"], 2e-5)
    if kind is not WithDraws:
        equal(results["debug"], outcome(kind, seed, "cpu", threads), 2e-5)


@pytest.mark.parametrize("seed", range(30))
def test_modes_agree(seed):
    check(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    failed, start = [], time.time()
    for seed in range(args.first, args.first + args.programs):
        try:
            check(seed)
        except Exception as e:  # every failure is wanted
            failed.append(seed)
            print(f"seed {seed}: {type(e).__name__}: {str(e)[:300]}", flush=True)
        if seed % 100 == 99:
            print(f"{seed + 1 - args.first} programs, {len(failed)} failed, "
                  f"{time.time() - start:.0f} s", flush=True)  # fmt: skip
    print(f"{args.programs - len(failed)} passed, {len(failed)} failed {failed[:20]}")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
