"""Random numbers of `torch.tpu`, under `torch.cuda`'s names.

A generator's state is 16 bytes: the seed as uint64, then the offset as int64; every draw advances
the offset. Nothing here starts the runtime. `torch.manual_seed` seeds all devices.
"""

from collections.abc import Iterable

import torch

from torch_tpu import _C
from torch_tpu._index import Device, device_index

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _generators() -> tuple[torch.Generator, ...]:
    return tuple(_C.default_generator(index) for index in range(_C.device_count()))


def get_rng_state(device: Device = "tpu") -> torch.Tensor:
    """State of the device's generator: a uint8 CPU tensor of 16 elements."""
    return _C.default_generator(device_index(device)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The state of every device's generator."""
    return [generator.get_state() for generator in _generators()]


def set_rng_state(new_state: torch.Tensor, device: Device = "tpu") -> None:
    """Set the state of the device's generator to one that `get_rng_state` gave."""
    _C.default_generator(device_index(device)).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the state of every device's generator."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    _C.default_generator(_C.current_device()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for generator in _generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator from the system's source of randomness."""
    _C.default_generator(_C.current_device()).seed()


def seed_all() -> None:
    """Give all devices' generators one seed from the system's source of randomness."""
    generators = _generators()
    if generators:
        manual_seed_all(generators[0].seed())


def initial_seed() -> int:
    """The seed that the current device's generator was last given."""
    return _C.default_generator(_C.current_device()).initial_seed()


def _get_rng_state_offset(device: Device = "tpu") -> int:
    return int(_C.default_generator(device_index(device)).get_offset())


def _set_rng_state_offset(offset: int, device: Device = "tpu") -> None:
    _C.default_generator(device_index(device)).set_offset(offset)
