"""Random ops that AOTAutograd computes twice: the backward graph draws the forward one's numbers.

The partitioner saves the generator's state before such an op (`run_and_save_rng_state`) and sets it
for the second time (`run_with_rng_state`). torch has these two operators for the devices that it
knows; `register` adds `tpu`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch._C import DispatchKey
from torch._prims import rng_prims

from torch_tpu import _C, random

SAVE, REPLAY = rng_prims.run_and_save_rng_state, rng_prims.run_with_rng_state


@functools.cache
def register() -> None:
    """Have the operators serve `tpu`, too."""

    def save(op: Any, *args: Any, **kwargs: Any) -> Any:
        return random.get_rng_state(), op(*args, **kwargs)

    def replay(state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
        before = random.get_rng_state()
        random.set_rng_state(state)
        try:
            return op(*args, **kwargs)
        finally:
            random.set_rng_state(before)

    for operator, kernel, first in ((SAVE, save, 0), (REPLAY, replay, 1)):
        # The operators choose by the device's name in their kernel of this key.
        table: dict[Any, Any] = operator.py_kernels
        table[DispatchKey.BackendSelect] = _for_tpu(kernel, table[DispatchKey.BackendSelect], first)
        operator._dispatch_cache.clear()


def _for_tpu(kernel: Any, others: Any, first: int) -> Any:
    def choose(*args: Any, **kwargs: Any) -> Any:
        of_op = args[first + 1 :]
        device: str | None = rng_prims.get_device(of_op, kwargs)  # type: ignore[no-untyped-call]
        on_tpu = device == "tpu"
        return (kernel if on_tpu else others)(*args, **kwargs)

    return choose


@contextlib.contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Ops that name no generator draw from this one's state."""
    default = _C.default_generator(generator.device.index)
    before = default.graphsafe_get_state()
    default.graphsafe_set_state(generator)
    try:
        yield
    finally:
        default.graphsafe_set_state(before)


class Offset:
    """The state that a traced op begins with: how far it is from that of the call."""

    def __init__(self, draws: int) -> None:
        self.draws = draws

    def after(self, state: torch.Tensor) -> torch.Tensor:
        """The generator's state that many draws later."""
        moved = state.clone()
        moved[8:].view(torch.int64).add_(self.draws)
        return moved
