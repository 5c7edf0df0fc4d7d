"""Orders of dims, outermost in memory first."""

from collections.abc import Sequence

import torch


def inverse(order: Sequence[int]) -> list[int]:
    """What brings permuted dims back."""
    return sorted(range(len(order)), key=order.__getitem__)


def laid_out(x: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The same tensor, stored with its dims in `order`."""
    return x.permute(tuple(order)).contiguous().permute(inverse(order))
