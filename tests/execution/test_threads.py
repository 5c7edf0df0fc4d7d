"""Several threads, on one device and on two; what never holds the interpreter's lock."""

import threading

import pytest
import torch
from helpers import exact, run_python

from torch_tpu.mode import set_eager_mode


def together(n, f):
    """Run f(0) to f(n - 1) in threads; raise what they raise."""
    errors = []

    def run(i):
        try:
            f(i)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    if errors:
        raise errors[0]


def test_threads_compute_side_by_side(mode):
    m = torch.tpu.eager_mode

    def work(i):
        with set_eager_mode(m):
            x = torch.full((16,), float(i)).to("tpu")
            for k in range(12):
                x = x * 2 - x + 1
                if k % 4 == i % 4:
                    exact(x, torch.full((16,), float(i + k + 1)))
            exact(x, torch.full((16,), i + 12.0))

    together(6, work)


def test_threads_write_views_of_one_tensor(mode):
    m = torch.tpu.eager_mode
    x = torch.zeros(8, 10).to("tpu")

    def work(i):
        with set_eager_mode(m):
            for _ in range(10):
                x[i].add_(i)

    together(8, work)
    exact(x, (10.0 * torch.arange(8))[:, None].expand(8, 10))


def test_threads_train_models_of_their_own(mode):
    m = torch.tpu.eager_mode
    losses = [[], [], []]

    def work(i):
        with set_eager_mode(m):
            torch.manual_seed(0)
            w = torch.full((6, 6), 0.1).to("tpu").requires_grad_()
            optimizer = torch.optim.SGD([w], lr=0.1)
            for _ in range(5):
                optimizer.zero_grad()
                loss = (w @ w - torch.eye(6).to("tpu")).square().mean()
                loss.backward()
                optimizer.step()
                losses[i].append(loss.item())

    together(3, work)
    assert losses[0] == losses[1] == losses[2]
    assert losses[0][-1] < losses[0][0]


def test_threads_of_other_modes():
    x = torch.arange(5.0).to("tpu")

    def work(i):
        with set_eager_mode(list(torch.tpu.EagerMode)[i % 3]):
            for k in range(10):
                exact((x + i) * k, (torch.arange(5.0) + i) * k)

    together(6, work)


def test_an_error_stays_in_its_thread(mode):
    m = torch.tpu.eager_mode

    def work(i):
        with set_eager_mode(m):
            x = torch.ones(3).to("tpu")
            for k in range(10):
                if i == 0:
                    with pytest.raises(RuntimeError):
                        x + torch.ones(4).to("tpu")
                else:
                    exact(x + k, torch.full((3,), 1.0 + k))

    together(3, work)


def test_two_devices():
    out = run_python(
        """
        import threading, torch
        from torch_tpu import debug
        print(torch.tpu.device_count())
        wrong = []
        def work(i, mode):
            torch.tpu.set_device(i % 2)
            with torch.tpu.set_eager_mode(mode):
                x = torch.full((8,), float(i), device="tpu")
                assert x.device.index == i % 2
                for k in range(10):
                    x = (x * 2 - i).add_(1)
                    if k % 3 == 0 and x.sum().isnan().item():
                        wrong.append(i)
                w = torch.ones(8, device=f"tpu:{i % 2}", requires_grad=True)
                (w * x).sum().backward()
                if not torch.equal(w.grad.cpu(), x.cpu()):
                    wrong.append(i)
                # Across, while the other device is busy.
                y = x.to(f"tpu:{1 - i % 2}")
                y.add_(1)
                if not torch.equal(y.cpu(), x.cpu() + 1):
                    wrong.append(i)
        for mode in torch.tpu.EagerMode:
            threads = [threading.Thread(target=work, args=(i, mode)) for i in range(6)]
            [t.start() for t in threads]
            [t.join() for t in threads]
        print(wrong)
        a, b = torch.ones(2, device="tpu:0"), torch.ones(2, device="tpu:1")
        try:
            a + b
        except RuntimeError as error:
            print(error)
        with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
            c, d = a + 1, b + 2
            d.cpu()
            print(debug.is_deferred(c), debug.is_deferred(d))
            print(c.tolist(), c.to("tpu:1").add(d).tolist())
            torch.tpu.synchronize(1)
        """,
        TORCH_TPU_CPU_DEVICE_COUNT="2",
    )
    lines = out.splitlines()
    assert lines[0] == "2" and lines[1] == "[]"
    assert "tpu:0 and tpu:1" in lines[2] or "tpu:1 and tpu:0" in lines[2]
    assert lines[3:] == ["True False", "[2.0, 2.0] [5.0, 5.0]"]


# Counts in a thread of pure Python while the main thread does something slow in C++.
COUNT = """
    import sys, threading, time, torch
    sys.setswitchinterval(0.001)
    x = torch.ones(4, 4).to("tpu")
    x.sum().item()
    count, run = 0, True
    def go():
        global count
        while run:
            count += 1
            time.sleep(0.0005)
    thread = threading.Thread(target=go)
    thread.start()
    def during(f):
        start, before = time.perf_counter(), count
        f()
        return (count - before) / (time.perf_counter() - start), time.perf_counter() - start
    idle, _ = during(lambda: time.sleep(0.5))
"""


def test_others_run_while_a_program_is_compiled():
    out = run_python(
        COUNT
        + """
    torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
    def many():
        y = x
        for i in range(40):
            y = (y @ x).sin() + i
        torch.tpu.synchronize()
    import torch_tpu
    # Op by op at first, then as a large program.
    before = torch_tpu.debug.compile_count()
    rate, _ = during(lambda: (many(), many()))
    run = False
    thread.join()
    print(rate / idle, torch_tpu.debug.compile_count() - before)
    """,
        TORCH_TPU_DISK_CACHE="0",
    )
    share, compiles = map(float, out.split())
    assert compiles > 2 and share > 0.2


def test_others_run_while_a_result_is_awaited():
    out = run_python(
        COUNT
        + """
    y = torch.ones(1500, 1500).to("tpu")
    def work():
        z = y
        for _ in range(6):
            z = z @ y / 1500
        return z.sum().item()
    work()
    rate, seconds = during(work)
    run = False
    thread.join()
    print(rate / idle, seconds)
    """
    )
    share, seconds = map(float, out.split())
    assert seconds > 0.1 and share > 0.1


def test_a_thread_that_compiles_does_not_stop_one_that_computes_on_the_host():
    out = run_python(
        """
        import threading, torch
        torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
        x = torch.ones(4, 4).to("tpu")
        x.sum().item()
        def compile_much():
            y = x
            for i in range(300):
                y = (y @ x).sin() + i
            y.sum().item()
        t = threading.Thread(target=compile_much)
        t.start()
        steps = 0
        while t.is_alive():
            torch.ones(10).add_(1)
            steps += 1
        t.join()
        print(steps)
        """,
        TORCH_TPU_DISK_CACHE="0",
    )
    assert int(out) > 100


def test_ctrl_c_in_a_loop_of_each_mode():
    out = run_python(
        """
        import os, signal, threading, time, torch
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by background jobs
        for mode in torch.tpu.EagerMode:
            with torch.tpu.set_eager_mode(mode):
                x = torch.ones(64, 64).to("tpu")
                x.sum().item()
                threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                try:
                    start = time.time()
                    while time.time() - start < 60:
                        x = (x @ x / 64).tanh() + 1
                    print("not interrupted")
                except KeyboardInterrupt:
                    y = torch.full((2,), 3.0).to("tpu")
                    print("interrupted", (y + 1).tolist(), x.isfinite().all().item())
        """,
        TORCH_TPU_FLUSH_OPS="50",
    )
    assert out == "interrupted [4.0, 4.0] True\n" * 3


def test_tensors_freed_by_other_threads(mode):
    m = torch.tpu.eager_mode
    box = []

    def make(_):
        with set_eager_mode(m):
            for _ in range(50):
                box.append(torch.ones(32).to("tpu") + 1)

    def drop(_):
        for _ in range(200):
            if box:
                box.pop()

    together(2, make)
    together(4, lambda i: (make if i % 2 else drop)(i))
    box.clear()
    torch.tpu.synchronize()
