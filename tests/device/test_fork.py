"""Processes: fork before and after the start, spawn, loader workers."""

import os
import signal

import torch
from helpers import exact, run_python


def test_child_forked_after_the_start_is_told_to_spawn():
    out = run_python("""
        import os, signal, torch
        x = torch.ones(4, device="tpu")
        x.sum().item()
        read, write = os.pipe()
        if os.fork() == 0:
            signal.alarm(60)
            said = [str(torch.tpu._is_in_bad_fork()), str(torch.tpu.is_initialized())]
            for call in (
                lambda: torch.ones(2, device="tpu"),
                lambda: torch.ones(2).to("tpu"),
                lambda: x + 1,
                lambda: x.cpu(),
                torch.tpu.synchronize,
                torch.tpu.init,
            ):
                try:
                    call()
                    said.append("no error")
                except RuntimeError as error:
                    said.append("spawn" if "'spawn'" in str(error) else str(error))
            torch.manual_seed(1)
            said.append(str((torch.arange(3) + 1).tolist()))
            os.write(write, ";".join(said).encode())
            os._exit(0)
        os.close(write)
        text = b""
        while chunk := os.read(read, 4096):
            text += chunk
        print(text.decode(), os.wait()[1], (x + 1).sum().item())
    """)
    assert out == "True;False;" + "spawn;" * 6 + "[1, 2, 3] 0 8.0\n", out


def test_child_forked_before_the_start_may_use_the_device():
    out = run_python("""
        import os, signal, sys, torch
        torch.manual_seed(1), torch.tpu.device_count()
        pid = os.fork()
        if pid == 0:
            signal.alarm(100)
            ok = torch.ones(3, device="tpu").sum().item() == 3
            os._exit(0 if ok else 1)
        status = os.waitpid(pid, 0)[1]
        print(status, torch.ones(2, device="tpu").sum().item())
    """)
    assert out == "0 2.0\n"


def test_spawned_children_use_the_device(tmp_path):
    script = tmp_path / "spawn.py"
    script.write_text("""
import torch, torch.multiprocessing as mp
def work(rank, queue):
    queue.put((rank, torch.full((2,), float(rank), device="tpu").sum().item()))
if __name__ == "__main__":
    torch.ones(1, device="tpu").item()
    context = mp.get_context("spawn")
    queue = context.Queue()
    children = [context.Process(target=work, args=(i, queue)) for i in range(2)]
    [c.start() for c in children]
    print(sorted(queue.get(timeout=200) for _ in children))
    [c.join() for c in children]
""")
    out = run_python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    assert out == "[(0, 0.0), (1, 2.0)]\n"


def test_forked_child_ends_with_its_tensors():
    x = torch.ones(1000, device="tpu") + 1
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        del x
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    exact(x[:2], torch.full((2,), 2.0))


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return torch.rand(1), torch.tensor([float(i)]) ** 2


def test_loader_workers_after_the_start():
    torch.ones(1, device="tpu").item()
    loader = torch.utils.data.DataLoader(Squares(), batch_size=3, num_workers=2)
    total = sum(x.to("tpu").sum().item() for _, x in loader)
    assert total == sum(i * i for i in range(12))


def test_process_ends_quietly_with_work_in_flight():
    out = run_python("""
        import torch
        torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
        keep = [torch.ones(512, 512, device="tpu") for _ in range(4)]
        for _ in range(5):
            keep = [x @ x for x in keep]
        stream, event = torch.tpu.Stream(), torch.tpu.Event()
        event.record(stream)
        pinned = torch.ones(10).pin_memory()
        print("end")
    """)
    assert out == "end\n"


def test_ctrl_c_ends_a_long_wait():
    out = run_python("""
        import os, signal, threading, time, torch
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by background jobs
        x = torch.ones(64, 64, device="tpu")
        x.sum().item()
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            start = time.time()
            while time.time() - start < 60:
                x = x @ x / 64
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", torch.ones(2, device="tpu").sum().item())
    """)
    assert out == "interrupted 2.0\n"
