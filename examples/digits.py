"""Train a small CNN on scikit-learn's handwritten digits.

python examples/digits.py
python examples/digits.py --epochs 5 --compare-cpu
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, default=Path("digits.png"), help="the loss curve")
    parser.add_argument(
        "--compare-cpu", action="store_true", help="fail unless the CPU's loss curve is the same"
    )
    return parser.parse_args(argv)


class Net(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.head = nn.Linear(8 * width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).flatten(1))


def data() -> tuple[TensorDataset, TensorDataset]:
    """Give 1,437 images to train on and 360 to test on, 1x8x8 each, values around zero."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    everything = TensorDataset(images, torch.tensor(digits.target))
    order = torch.randperm(len(everything), generator=torch.Generator().manual_seed(0))
    rest = len(everything) // 5
    return (TensorDataset(*everything[order[rest:]]), TensorDataset(*everything[order[:rest]]))


def train(args: argparse.Namespace, device: torch.device) -> tuple[list[float], float]:
    """Give the loss of each step and the accuracy on the test images."""
    torch.manual_seed(args.seed)
    train_set, test_set = data()
    loader = DataLoader(
        train_set,
        args.batch,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        pin_memory=device.type != "cpu",
        generator=torch.Generator().manual_seed(args.seed),
    )
    model = Net(args.width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, args.epochs * len(loader))

    losses = []
    for epoch in range(args.epochs):
        start = time.perf_counter()
        model.train()
        epoch_losses = []
        for images, labels in loader:
            images = images.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            loss = nn.functional.cross_entropy(model(images), labels, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            epoch_losses.append(loss.detach())
        losses += torch.stack(epoch_losses).tolist()  # the only wait of the epoch
        mean = sum(losses[-len(epoch_losses) :]) / len(epoch_losses)
        spent = time.perf_counter() - start
        print(f"[{device}] epoch {epoch + 1:2}: loss {mean:.4f}, {spent:.2f} s", flush=True)

    model.eval()
    with torch.inference_mode():
        right = sum(
            (model(images.to(device)).argmax(1) == labels.to(device)).sum()
            for images, labels in DataLoader(test_set, args.batch)
        )
    return losses, float(right) / len(test_set)


def plot(path: Path, curves: dict[str, list[float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for (name, losses), style in zip(curves.items(), ("-", "--"), strict=False):
        axes.plot(losses, style, label=name, linewidth=1)
    axes.set(xlabel="step", ylabel="loss", yscale="log", title="Digits")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"plot: {path}")


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    losses, accuracy = train(args, torch.device(args.device))
    print(f"test accuracy {accuracy:.2%}")
    curves = {args.device: losses}
    if args.compare_cpu:
        curves["cpu"], _ = train(args, torch.device("cpu"))
    plot(args.plot, curves)
    if args.compare_cpu:
        pairs = zip(losses, curves["cpu"], strict=True)
        gap = max(abs(a - b) for a, b in pairs)
        print(f"largest difference of a step's loss from the CPU's: {gap:.2e}")
        if gap > 0.05:
            sys.exit("the loss curve differs from the CPU's")


if __name__ == "__main__":
    main()
