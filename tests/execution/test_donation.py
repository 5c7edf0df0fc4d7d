"""In-place work reuses memory, and never what somebody still reads."""

import threading

import pytest
import torch
from helpers import exact, run_python

pytestmark = pytest.mark.usefixtures("full_compiles")

LOOP = """
    import resource, torch
    from torch_tpu.mode import EagerMode
    torch.tpu.eager_mode = EagerMode.{mode}
    N = 48 * 2 ** 20
    x = torch.zeros(N // 4).to("tpu")
    for _ in range(3):
        {body}
        x.sub_(1.0)
        torch.tpu.synchronize()
    x.fill_(1.0)
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for _ in range(6):
        {body}
        torch.tpu.synchronize()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    peak = torch.tpu.max_memory_allocated() - N
    print(x[5].item(), round((grown if {resident} else peak) / N, 1))
"""


@pytest.mark.parametrize("mode_name", ["DEFER_NEVER", "DEFER_AND_FUSE"])
def test_a_loop_in_place_does_not_grow(mode_name):
    value, grown = run_python(LOOP.format(resident=True, mode=mode_name, body="x.add_(1)")).split()
    assert value == "7.0" and float(grown) < 0.5
    # By our count, which can tell: without donation a second one is needed.
    code = LOOP.format(resident=False, mode=mode_name, body="x.add_(1)")
    value, grown = run_python(code).split()
    assert value == "7.0" and float(grown) < 0.5
    value, grown = run_python(code, TORCH_TPU_DONATION="0").split()
    assert value == "7.0" and float(grown) > 0.5


def test_views_written_in_a_loop_do_not_grow():
    value, grown = run_python(
        LOOP.format(resident=True, mode="DEFER_NEVER", body="x[4:8].add_(1)")
    ).split()
    assert value == "7.0" and float(grown) < 0.5


def test_a_clone_keeps_its_value(mode):
    x = torch.arange(4.0).to("tpu")
    y = x.clone()
    x.add_(1)
    exact(y, torch.arange(4.0))
    exact(x, torch.arange(4.0) + 1)
    y.mul_(2)
    exact(x, torch.arange(4.0) + 1)


def test_a_recorded_reader_keeps_the_old_value(mode):
    x = torch.arange(4.0).to("tpu")
    y = x * 10
    x.zero_()
    z = x + 1
    x.fill_(5)
    exact(y, torch.arange(4.0) * 10)
    exact(z, torch.ones(4))
    exact(x, torch.full((4,), 5.0))


def test_saved_tensors_are_not_donated(mode):
    x = torch.arange(1.0, 5.0).to("tpu")
    w = torch.full((4,), 3.0).to("tpu").requires_grad_()
    loss = (w * x.detach().clone()).square().sum()
    with torch.no_grad():
        kept = w.detach().clone()
    loss.backward()
    with torch.no_grad():
        w -= w.grad
    exact(kept, torch.full((4,), 3.0))
    exact(w.grad, 6 * torch.arange(1.0, 5.0) ** 2)


def test_a_host_reader_in_another_thread(mode):
    x = torch.zeros(200_000).to("tpu")
    wrong = []

    def read():
        for _ in range(15):
            y = x.cpu()
            if y.min() != y.max():
                wrong.append((y.min(), y.max()))

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(15):
        x.add_(1)
    thread.join()
    assert not wrong
    exact(x[:2], torch.full((2,), 15.0))


def test_the_same_tensor_twice_in_place(mode):
    x = torch.arange(4.0).to("tpu")
    x.add_(x)
    x.mul_(x).sub_(x[0].clone())
    exact(x, (2 * torch.arange(4.0)) ** 2)


def test_uploads_are_not_written_by_donation(mode):
    host = torch.arange(1024.0)
    x = host.to("tpu")
    x.add_(1)
    torch.tpu.synchronize()
    assert torch.equal(host, torch.arange(1024.0))
    back = x.cpu()
    x.zero_()
    torch.tpu.synchronize()
    assert torch.equal(back, torch.arange(1024.0) + 1)


def test_donation_can_be_switched_off():
    out = run_python(
        """
        import torch
        x = torch.arange(4.).to("tpu")
        for _ in range(3):
            x.add_(1)
        print(x.tolist())
        """,
        TORCH_TPU_DONATION="0",
    )
    assert out == "[3.0, 4.0, 5.0, 6.0]\n"
