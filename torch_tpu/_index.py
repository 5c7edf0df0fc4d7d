"""From what a user gives as a device to a device index."""

import torch

from torch_tpu import _C

Device = torch.device | str | int | None


def device_index(device: Device = None, *, check: bool = True) -> int:
    """Index of a `tpu` device; the current one for None and for "tpu" without an index.

    Raises ValueError for a device of another kind, TypeError for what is no device and, with
    `check`, RuntimeError for an index that this process does not have. Starts nothing.
    """
    if device is None:
        return _C.current_device()
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "tpu":
            raise ValueError(f"expected a tpu device, got {device}")
        index = _C.current_device() if device.index is None else device.index
    elif isinstance(device, int) and not isinstance(device, bool):
        index = device
    else:
        raise TypeError(f"a device is a torch.device, str or int, got {type(device).__name__}")
    if check:
        count = _C.device_count()
        if not 0 <= index < count:
            last = "" if count < 2 else f" to tpu:{count - 1}"
            have = f"this process has tpu:0{last}" if count else "this process has none"
            raise RuntimeError(f"there is no device tpu:{index}; {have}")
    return index
