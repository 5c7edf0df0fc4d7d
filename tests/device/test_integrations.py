"""What torch's lazy parts and other packages find: Dynamo, AMP, FSDP2, safetensors, accelerate."""

import os
import subprocess
import sys
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from helpers import exact, run_python, same
from torch import nn

from torch_tpu import debug


def test_import_hook(tmp_path, monkeypatch):
    from torch_tpu._import_hook import when_imported

    (tmp_path / "hook_sample").mkdir()
    (tmp_path / "hook_sample" / "__init__.py").write_text("value = 1\n")
    (tmp_path / "hook_sample" / "inner.py").write_text("value = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    when_imported("hook_sample.inner", lambda module: seen.append(module.value))
    when_imported("hook_sample.inner", lambda module: setattr(module, "value", 3))
    import hook_sample

    assert seen == [] and hook_sample.value == 1
    from hook_sample.inner import value

    assert seen == [2] and value == 3
    when_imported("hook_sample.inner", lambda module: seen.append(module.value))
    assert seen == [2, 3]
    loader = sys.modules["hook_sample.inner"].__loader__
    assert "exec_module" not in vars(loader)


# -- torch.compile ---------------------------------------------------------------------------------


def mlp(x, w, b):
    return F.gelu(x @ w + b).sum(dim=1)


@pytest.mark.parametrize("backend", [None, "tpu"])
def test_compile_forward_and_backward(backend):
    torch._dynamo.reset()
    inputs = [torch.randn(4, 8), torch.randn(8, 8), torch.randn(8)]
    host = [x.clone().requires_grad_() for x in inputs]
    device = [x.to("tpu").requires_grad_() for x in inputs]
    compiled = torch.compile(mlp, backend=backend, fullgraph=True)
    want, got = mlp(*host), compiled(*device)
    same(got, want, rtol=1e-4, atol=1e-4)
    want.sum().backward()
    got.sum().backward()
    for h, d in zip(host, device, strict=True):
        same(d.grad, h.grad, rtol=1e-4, atol=1e-4)


def test_backend_is_listed_and_bare_compile_chooses_by_device(monkeypatch):
    from torch._dynamo.backends.registry import lookup_backend

    from torch_tpu import compile as ours

    assert "tpu" in torch.compiler.list_backends()
    assert lookup_backend("tpu") is ours.tpu_backend
    assert torch.compiler.get_default_backend() is ours.default_backend
    torch._dynamo.reset()
    calls = []

    class Inductor:
        def __init__(self, mode, options, dynamic):
            self.arguments = mode, options, dynamic

        def __call__(self, graph, inputs):
            calls.append(self.arguments)
            return graph.forward

    monkeypatch.setattr(torch, "_TorchCompileInductorWrapper", Inductor)
    ours._inductor.cache_clear()
    plain = torch.compile(lambda x: x + 1)
    assert torch.equal(plain(torch.ones(2)), torch.full((2,), 2.0))
    assert calls == [("default", None, None)]
    exact(plain(torch.ones(2, device="tpu")), torch.full((2,), 2.0))
    assert len(calls) == 1
    tuned = torch.compile(lambda x: x * 3, options={"max_autotune": True})
    tuned(torch.ones(2))
    assert calls[-1] == (None, {"max_autotune": True}, None)
    ours._inductor.cache_clear()


def test_compile_graph_without_inputs_on_the_device():
    torch._dynamo.reset()

    @torch.compile(fullgraph=True)
    def make(n):
        return torch.arange(5, device="tpu") * n

    exact(make(2), torch.arange(5) * 2)
    layer = torch.compile(nn.Linear(2, 2).to("tpu"))
    assert layer(torch.ones(1, 2, device="tpu")).is_tpu


def test_compile_mutation_views_and_aliases():
    torch._dynamo.reset()

    @torch.compile(backend="tpu")
    def step(x, y):
        x.add_(y)
        view = x[1:]
        view.mul_(2)
        return view, x, x.sum()

    host, device = torch.arange(4.0), torch.arange(4.0, device="tpu")
    view, same_x, total = step(device, torch.ones(4, device="tpu"))
    host.add_(1)
    host[1:].mul_(2)
    exact(device, host)
    exact(view, host[1:])
    assert same_x is device or same_x.data_ptr() == device.data_ptr()
    exact(total, host.sum())


def test_compile_dropout_follows_the_seed():
    torch._dynamo.reset()
    drop = torch.compile(lambda x: F.dropout(x, 0.5), backend="tpu")
    x = torch.ones(200, device="tpu")
    torch.manual_seed(3)
    a, b = drop(x).cpu(), drop(x).cpu()
    torch.manual_seed(3)
    exact(drop(x), a)
    assert not torch.equal(a, b)


def test_compiled_graph_is_few_programs():
    torch._dynamo.reset()
    x = torch.ones(16, device="tpu")

    def chain(x):
        for _ in range(10):
            x = (x * 0.5).sin() + 1
        return x

    compiled = torch.compile(chain, backend="tpu")
    same(compiled(x), chain(torch.ones(16)))
    torch.tpu.synchronize()
    before = debug.counters()["executes"]
    compiled(x)
    torch.tpu.synchronize()
    assert debug.counters()["executes"] - before == 1


def test_compile_of_a_static_cache_generate_call():
    # What transformers does for a device of type tpu.
    torch._dynamo.reset()
    f = torch.compile(lambda x: x.cumsum(0), backend="tpu", dynamic=False, mode="reduce-overhead")
    exact(f(torch.ones(4, device="tpu")), torch.arange(1.0, 5))
    with pytest.raises(Exception, match="has no option 'nonsense'"):
        torch.compile(lambda x: x + 1, backend="tpu", options={"nonsense": 1})(
            torch.ones(1, device="tpu")
        )


def test_dynamo_device_interface():
    from torch._dynamo.device_interface import get_interface_for_device

    for name in ("tpu", "tpu:0", torch.device("tpu", 0)):
        interface = get_interface_for_device(name)
        assert interface.current_device() == torch.tpu.current_device()
        assert interface.device_count() == torch.tpu.device_count()
        assert interface.is_available() and interface.is_bf16_supported()
        assert interface.Stream is torch.tpu.Stream and interface.Event is torch.tpu.Event
        assert interface.is_dtype_supported(torch.float32)
        assert interface.get_device_properties().multi_processor_count >= 1
        interface.synchronize()


def test_nothing_of_dynamo_is_imported_at_start():
    out = run_python("""
        import sys, torch
        torch.ones(2, device="tpu").sum().item()
        heavy = ("torch._dynamo", "torch._inductor", "safetensors", "accelerate", "jax")
        print([name for name in heavy if name in sys.modules])
    """)
    assert out == "[]\n"


# -- autocast --------------------------------------------------------------------------------------


def test_autocast():
    layer, x = nn.Linear(4, 4).to("tpu"), torch.randn(2, 4, device="tpu")
    with torch.autocast("tpu"):
        assert torch.get_autocast_dtype("tpu") == torch.bfloat16
        y = layer(x)
        assert y.dtype == torch.bfloat16 and F.softmax(y, -1).dtype == torch.float32
        assert F.layer_norm(y, (4,)).dtype == torch.float32
        assert torch.empty(2, 4, device="tpu").copy_(x).dtype == torch.float32
        assert (x + y).dtype == torch.float32
        assert F.scaled_dot_product_attention(*[y.view(1, 1, 2, 4)] * 3).dtype == torch.bfloat16
        with torch.autocast("tpu", enabled=False):
            assert (x @ x.t()).dtype == torch.float32
        loss = F.mse_loss(layer(y), y)
    assert loss.dtype == torch.float32
    loss.backward()
    assert layer.weight.grad.dtype == torch.float32
    with torch.autocast("tpu", dtype=torch.float16):
        assert (x @ x.t()).dtype == torch.float16
    assert (x @ x.t()).dtype == torch.float32


def test_amp_under_the_names_of_cuda():
    amp = torch.tpu.amp

    class Product(torch.autograd.Function):
        @staticmethod
        @amp.custom_fwd(cast_inputs=torch.float16)
        def forward(ctx, a, b):
            seen.append((a.dtype, torch.is_autocast_enabled("tpu")))
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @amp.custom_bwd
        def backward(ctx, gradient):
            seen.append((gradient.dtype, torch.is_autocast_enabled("tpu")))
            a, b = ctx.saved_tensors
            return gradient @ b.t(), a.t() @ gradient

    seen = []
    x = torch.randn(4, 4, device="tpu", requires_grad=True)
    optimizer, scaler = torch.optim.SGD([x], 0.1), amp.GradScaler(init_scale=8.0)
    with amp.autocast():
        assert (x @ x).dtype == torch.bfloat16
        loss = Product.apply(x, x).float().square().mean()
    with amp.autocast(dtype=torch.float16):
        assert (x @ x).dtype == torch.float16
        with amp.autocast(enabled=False):
            assert (x @ x).dtype == torch.float32
    scaler.scale(loss).backward()
    assert seen == [(torch.float16, False)] * 2
    before = x.detach().clone()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before, x) and scaler.get_scale() == 8.0

    @amp.autocast(dtype=torch.float16)
    def decorated():
        return x @ x

    assert decorated().dtype == torch.float16


def test_autocast_default_in_another_thread():
    seen = []

    def work():
        x = torch.ones(2, 2, device="tpu")
        with torch.autocast("tpu"):
            seen.append((x @ x).dtype)
        torch.set_autocast_dtype("tpu", torch.float16)
        with torch.autocast("tpu"):
            seen.append((x @ x).dtype)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [torch.bfloat16, torch.float16]


def test_autocast_in_compiled_and_scripted_code():
    def f(a, b):
        with torch.autocast("tpu", dtype=torch.bfloat16):
            return a @ b

    x = torch.ones(2, 2, device="tpu")
    assert torch.compile(f, backend="tpu", fullgraph=True)(x, x).dtype == torch.bfloat16

    # TorchScript knows autocast for the CPU and for CUDA only; it must still find the class.
    def g(a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return a @ b

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(g)
    assert scripted(x.cpu(), x.cpu()).dtype == torch.bfloat16


def test_autocast_follows_the_lists():
    conv, x = nn.Conv2d(3, 4, 3).to("tpu"), torch.randn(1, 3, 8, 8, device="tpu")
    q = torch.randn(2, 3, 4, device="tpu")
    with torch.autocast("tpu"):
        for lower in (
            conv(x),
            torch.bmm(q, q.mT),
            torch.matmul(q, q.mT),
            torch.einsum("bij,bkj->bik", q, q),
        ):
            assert lower.dtype == torch.bfloat16
        half = q.bfloat16()
        for full in (torch.exp(half), half.sum(), half.pow(2.0), torch.log(half.abs() + 1)):
            assert full.dtype in (torch.float32, torch.bfloat16)


def test_grad_scaler():
    scaler = torch.amp.GradScaler("tpu", init_scale=8.0)
    w = torch.ones(3, device="tpu", requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=1.0)
    scaler.scale((w * 2).sum()).backward()
    exact(w.grad, torch.full((3,), 16.0))
    scaler.step(optimizer)
    scaler.update()
    exact(w, torch.full((3,), -1.0))
    w.grad = torch.full((3,), float("inf"), device="tpu")
    scaler.scale(w.sum())
    scaler.step(optimizer)
    scaler.update()
    exact(w, torch.full((3,), -1.0))
    assert scaler.get_scale() == 4.0


# -- FSDP2, TorchTitan -----------------------------------------------------------------------------


def test_what_fsdp_and_titan_ask_of_the_module():
    module = torch.get_device_module("tpu")
    stream = module.Stream(priority=-1)
    with module.stream(stream):
        x = torch.ones(4, device="tpu") * 2
        event = stream.record_event()
    module.current_stream().wait_event(event)
    module.current_stream().wait_stream(stream)
    done = module.Event()
    done.record()
    done.wait(stream)
    exact(x, torch.full((4,), 2.0))
    stats = module.memory_stats()
    for name in (
        "active_bytes.all.peak",
        "reserved_bytes.all.peak",
        "num_alloc_retries",
        "num_ooms",
    ):
        assert name in stats
    assert module.get_device_properties(0).total_memory > 0 and module.get_device_name()


def test_fsdp_storage_resizing():
    x = torch.arange(1024.0, device="tpu")
    y = x[10:]
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    x.untyped_storage().resize_(0)
    assert torch.tpu.memory_allocated() <= before - x.nbytes
    x.untyped_storage().resize_(4096)
    x.copy_(torch.arange(1024.0))
    exact(y, torch.arange(10.0, 1024))


# -- safetensors -----------------------------------------------------------------------------------


def test_safetensors_straight_to_the_device(tmp_path):
    st = pytest.importorskip("safetensors.torch")
    import safetensors

    path = str(tmp_path / "x.safetensors")
    tensors = {"a": torch.randn(3, 4), "b": torch.arange(5), "h": torch.ones(2).bfloat16()}
    st.save_file({k: v.to("tpu") for k, v in tensors.items()}, path, metadata={"format": "pt"})
    for device in ("tpu", "tpu:0", torch.device("tpu"), 0):
        back = st.load_file(path, device=device)
        assert set(back) == set(tensors)
        for name, want in tensors.items():
            exact(back[name], want)
    with safetensors.safe_open(path, framework="pt", device="tpu") as file:
        assert isinstance(file, safetensors.safe_open)
        assert set(file.keys()) == set(tensors) and file.metadata() == {"format": "pt"}
        exact(file.get_tensor("a"), tensors["a"])
        part = file.get_slice("a")
        assert part.get_shape() == [3, 4]
        exact(part[1:, ::2], tensors["a"][1:, ::2])
        assert set(file.get_tensors()) == set(tensors)
    assert st.load_file(path)["a"].device.type == "cpu"
    with safetensors.safe_open(path, "pt") as file:
        assert isinstance(file, safetensors.safe_open)
        assert file.get_tensor("b").device.type == "cpu"
    layer = nn.Linear(4, 3).to("tpu")
    st.save_model(layer, path)
    other = nn.Linear(4, 3).to("tpu")
    st.load_model(other, path, device="tpu")
    exact(other.weight, layer.weight.detach().cpu())
    with pytest.raises(FileNotFoundError):
        st.load_file(str(tmp_path / "none"), device="tpu")


@pytest.mark.parametrize(
    "first", ["safetensors", "safetensors.torch", "torch, safetensors.torch", "safetensors, torch"]
)
def test_safetensors_in_any_order_of_imports(first, tmp_path):
    pytest.importorskip("safetensors")
    out = run_python(f"""
        import {first}
        import torch
        from safetensors.torch import load_file, save_file
        save_file({{"x": torch.ones(2)}}, {str(tmp_path / "x.st")!r})
        print(load_file({str(tmp_path / "x.st")!r}, device="tpu")["x"].device)
    """)
    assert out == "tpu:0\n"


# -- accelerate ------------------------------------------------------------------------------------


def test_accelerate_takes_the_device(tmp_path):
    pytest.importorskip("accelerate")
    script = """
import torch
from accelerate import Accelerator
from accelerate.utils import get_max_memory
accelerator = Accelerator()
model = torch.nn.Linear(2, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
accelerator.backward(model(torch.ones(3, 2, device=accelerator.device)).sum())
optimizer.step()
memory = get_max_memory()
print(accelerator.device.type, next(model.parameters()).device, list(memory)[:1], memory[0] > 0,
      "cpu" in memory, get_max_memory({0: "1GB", "cpu": 5}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == ("tpu tpu:0 [0] True True {0: 1000000000, 'cpu': 5}"), (
        done.stdout
    )


def test_accelerate_variable_is_a_default():
    code = "import os, torch; print(os.environ['ACCELERATE_TORCH_DEVICE'])"
    assert run_python(code, ACCELERATE_TORCH_DEVICE=None) == "tpu\n"
    assert run_python(code, ACCELERATE_TORCH_DEVICE="cpu") == "cpu\n"
    assert os.environ["ACCELERATE_TORCH_DEVICE"] == "tpu"


def test_accelerate_dispatches_over_device_and_host():
    accelerate = pytest.importorskip("accelerate")
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(3, 4)
    want = model(x)
    model = accelerate.dispatch_model(
        model, {"0": "tpu:0", "1": "tpu:0", "2": "cpu"}, main_device="tpu:0"
    )
    torch.testing.assert_close(model(x).cpu(), want)
