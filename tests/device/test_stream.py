"""Streams and events: types, selection, order, timing."""

import threading

import pytest
import torch
from helpers import exact

from torch_tpu.mode import EagerMode, set_eager_mode


def test_types():
    stream, event = torch.tpu.Stream(), torch.tpu.Event()
    assert isinstance(stream, torch.Stream) and isinstance(event, torch.Event)
    assert isinstance(torch.tpu.current_stream(), torch.tpu.Stream)
    assert isinstance(torch.tpu.default_stream(), torch.tpu.Stream)
    assert issubclass(torch.tpu.Event, torch.Event) and isinstance(event, torch.tpu.Event)
    assert not isinstance(torch.Event("cpu"), torch.tpu.Event)
    assert stream.device == torch.device("tpu:0") and event.device.type == "tpu"
    assert "torch.tpu.Stream" in repr(stream) and "tpu" in repr(event)
    assert torch.Stream("tpu").device.type == "tpu" and torch.Event("tpu").device.type == "tpu"
    torch.tpu.Stream(device="tpu:0", priority=-1)
    torch.tpu.Stream(priority=0)
    with pytest.raises(NotImplementedError, match="between processes"):
        torch.tpu.Event(interprocess=True)


def test_identity():
    default = torch.tpu.default_stream()
    assert torch.tpu.current_stream() == default == torch.accelerator.current_stream()
    assert hash(default) == hash(torch.tpu.current_stream())
    a, b = torch.tpu.Stream(), torch.tpu.Stream()
    assert a != b and a != default
    again = torch.tpu.Stream(
        stream_id=a.stream_id, device_index=a.device_index, device_type=a.device_type
    )
    assert again == a


def test_selection_nests_and_is_restored():
    default, a, b = torch.tpu.current_stream(), torch.tpu.Stream(), torch.tpu.Stream()
    with torch.tpu.stream(a):
        assert torch.tpu.current_stream() == a
        with torch.tpu.stream(None):
            assert torch.tpu.current_stream() == a
        with pytest.raises(ZeroDivisionError), torch.tpu.stream(b):
            assert torch.tpu.current_stream() == b
            _ = 1 / 0
        assert torch.tpu.current_stream() == a
    assert torch.tpu.current_stream() == default
    with a:  # torch.Stream's own context
        assert torch.tpu.current_stream() == a
    torch.tpu.set_stream(b)
    assert torch.accelerator.current_stream() == b
    torch.tpu.set_stream(default)
    torch.tpu.set_stream(None)
    assert torch.tpu.current_stream() == default


def test_selection_is_per_thread():
    seen = []
    with torch.tpu.stream(torch.tpu.Stream()):
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.tpu.default_stream()]


def test_work_on_one_stream_is_seen_on_another_after_wait(mode):
    side = torch.tpu.Stream()
    x = torch.ones(64, 64, device="tpu")
    with torch.tpu.stream(side):
        side.wait_stream(torch.tpu.default_stream())
        y = (x @ x).add_(1)
        done = side.record_event()
    torch.tpu.current_stream().wait_event(done)
    exact(y * 2, torch.full((64, 64), 130.0))


def test_chain_of_waits(mode):
    streams = [torch.tpu.Stream() for _ in range(4)]
    x = torch.zeros(128, device="tpu")
    event = torch.tpu.Event()
    event.record()
    for stream in streams * 3:
        event.wait(stream)
        with torch.tpu.stream(stream):
            x.add_(1).mul_(2)
            event = torch.tpu.Event()
            event.record(stream)
    event.synchronize()
    want = torch.zeros(128)
    for _ in range(12):
        want.add_(1).mul_(2)
    exact(x, want)


def test_every_way_to_record_and_wait():
    stream, event = torch.tpu.Stream(), torch.tpu.Event()
    with torch.tpu.stream(stream):
        x = torch.ones(8, device="tpu") * 2
    stream.record_event(event)
    for wait in (event.wait, torch.tpu.current_stream().wait_event):
        wait(torch.tpu.current_stream() if wait == event.wait else event)
    stream.record_event().wait()
    event.record(stream)
    event.record()
    exact(x, torch.full((8,), 2.0))


def test_query_and_synchronize():
    stream, event = torch.tpu.Stream(), torch.tpu.Event()
    assert event.query()  # never recorded
    with torch.tpu.stream(stream):
        x = torch.ones(256, 256, device="tpu")
        for _ in range(4):
            x = x @ x / 256
        event.record()
    event.synchronize()
    assert event.query()
    stream.synchronize()
    assert stream.query()
    exact(x, torch.ones(256, 256))


def test_event_records_the_work_before_it_not_after():
    with set_eager_mode(EagerMode.DEFER_AND_FUSE):
        x = torch.ones(8, device="tpu")
        event = torch.tpu.Event()
        event.record()
        y = x + 1
        event.synchronize()
        assert event.query()
        exact(y, torch.full((8,), 2.0))


def test_elapsed_time(mode):
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    x = torch.ones(512, 512, device="tpu")
    (x @ x).sum().item()
    start.record()
    for _ in range(8):
        x = x @ x / 512
    end.record()
    end.synchronize()
    long = start.elapsed_time(end)
    assert 0.1 < long < 60_000
    start.record()
    end.record()
    torch.tpu.synchronize()
    assert 0 <= start.elapsed_time(end) < long
    with pytest.raises((RuntimeError, ValueError)):
        torch.tpu.Event().elapsed_time(end)


def test_synchronize_waits_for_all_streams():
    streams = [torch.tpu.Stream() for _ in range(3)]
    events = []
    for stream in streams:
        with torch.tpu.stream(stream):
            x = torch.ones(256, 256, device="tpu")
            for _ in range(3):
                x = x @ x / 256
            events.append(stream.record_event())
    torch.tpu.synchronize()
    assert all(event.query() for event in events) and all(stream.query() for stream in streams)


def test_backward_runs_on_the_stream_of_forward():
    stream = torch.tpu.Stream()
    w = torch.ones(16, device="tpu", requires_grad=True)
    with torch.tpu.stream(stream):
        loss = (w * 3).sum()
    torch.tpu.current_stream().wait_stream(stream)
    loss.backward()
    exact(w.grad, torch.full((16,), 3.0))


def test_record_stream_keeps_the_memory():
    side = torch.tpu.Stream()
    x = torch.ones(1 << 16, device="tpu")
    with torch.tpu.stream(side):
        y = x * 2
    x.record_stream(side)
    del x
    side.synchronize()
    exact(y, torch.full((1 << 16,), 2.0))


def test_priority():
    least, greatest = torch.tpu.Stream.priority_range()
    assert greatest <= least
    assert torch.tpu.Stream(priority=greatest).priority == greatest
    assert torch.tpu.Stream().priority == 0
