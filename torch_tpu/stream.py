"""Streams and events of `torch.tpu`, named and used as in `torch.cuda`.

A stream is a queue of work on one device: what is put on one stream runs in order, two streams are
ordered only by events and synchronisation. Both classes are torch's own with `tpu` as the default
device, so that everything that takes a `torch.Stream` or `torch.Event` takes them.
"""

from types import TracebackType

import torch

from torch_tpu import _C
from torch_tpu._index import Device, device_index

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
]


class Stream(torch.Stream):
    """A stream on `device` (default: the current one). A lower `priority` is more urgent, a hint.

    `Stream(stream_id=, device_index=, device_type=)` names a stream that exists.
    """

    _priority = 0

    def __new__(  # noqa: D102
        cls, device: Device = None, priority: int = 0, **ids: int
    ) -> "Stream":
        if ids:
            return super().__new__(cls, priority=priority, **ids)
        where = torch.device("tpu", device_index(device))
        stream = super().__new__(cls, where, priority=priority)
        stream._priority = priority
        return stream

    @property
    def priority(self) -> int:
        """As given; 0 for a stream that was named by its number."""
        return self._priority

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the most urgent priority."""
        return 0, -1

    def __repr__(self) -> str:
        return f"torch.tpu.Stream(device={self.device}, stream_id={self.stream_id})"


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "tpu"


class Event(torch.Event, metaclass=_EventType):
    """A point in a stream's work: `record`, `wait`, `query`, `synchronize`, `elapsed_time`.

    `elapsed_time(end)` gives milliseconds and needs `enable_timing=True` in both events.
    `interprocess=True` raises: events cannot be shared between processes.
    """

    # Makes a torch.Event: torch's own methods refuse events of a derived class.
    def __new__(  # type: ignore[misc]  # noqa: D102
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        device: Device = None,
    ) -> torch.Event:
        if interprocess:
            raise NotImplementedError("tpu events cannot be shared between processes")
        where = torch.device("tpu", device_index(device))
        return torch.Event(where, enable_timing=enable_timing, blocking=blocking)


def _wrap(stream: torch.Stream) -> Stream:
    return Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )


def current_stream(device: Device = None) -> Stream:
    """The stream on which this thread's work for `device` goes."""
    return _wrap(torch._C._accelerator_getStream(device_index(device)))


def default_stream(device: Device = None) -> Stream:
    """The stream that `device` uses when none is selected."""
    index = device_index(device)
    kind = torch._C._autograd.DeviceType.PrivateUse1
    return Stream(stream_id=0, device_index=index, device_type=kind.value)


def set_stream(stream: torch.Stream | None) -> None:
    """Select `stream` and its device for this thread. None changes nothing."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    set_stream(Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


class StreamContext:
    """`with torch.tpu.stream(s):` selects `s` and its device inside the block; None: no change."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: list[tuple[int, torch.Stream]] = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        index = _C.current_device()
        previous = torch._C._accelerator_getStream(self.stream.device.index)
        self._previous.append((index, previous))
        set_stream(self.stream)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.stream is None:
            return
        index, previous = self._previous.pop()
        set_stream(previous)
        _C.set_device(index)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager that selects `stream`; see StreamContext."""
    return StreamContext(stream)
