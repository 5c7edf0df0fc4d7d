"""`torch.tpu` and `torch.accelerator`: names, devices, properties."""

import copy
import inspect
import pickle
import threading

import pytest
import torch
from helpers import exact, run_python

NAMES = """
    AcceleratorError DeviceProperties EagerMode Event OutOfMemoryError Precision Stream
    StreamContext amp cache can_device_access_peer current_device current_stream default_generators
    default_stream device device_count device_memory_used device_of eager_mode empty_cache
    empty_host_cache get_amp_supported_dtype get_device_capability get_device_name
    get_device_properties get_memory_info get_per_process_memory_fraction get_rng_state
    get_rng_state_all get_sync_debug_mode init initial_seed is_available is_bf16_supported
    is_current_stream_capturing is_initialized is_tf32_supported manual_seed manual_seed_all
    max_memory_allocated max_memory_reserved mem_get_info memory memory_allocated
    memory_reserved memory_snapshot memory_stats memory_stats_as_nested_dict memory_summary
    precision random reset_accumulated_memory_stats reset_max_memory_allocated
    reset_peak_memory_stats seed seed_all set_device set_eager_mode
    set_per_process_memory_fraction set_rng_state set_rng_state_all set_stream
    set_sync_debug_mode stream streams synchronize
""".split()


def test_names_are_there_listed_and_documented():
    listed = dir(torch.tpu)
    for name in NAMES:
        value = getattr(torch.tpu, name)
        assert name in listed
        if inspect.isfunction(value) or inspect.isclass(value):
            assert value.__doc__, name
    for name in ("_is_in_bad_fork", "_lazy_init", "_initialized", "_is_compiled"):
        assert hasattr(torch.tpu, name)
    assert torch.get_device_module("tpu") is torch.tpu


def test_public_names_of_cuda_are_there_or_make_no_sense():
    # Public functions and classes that torch.cuda and torch.xpu share: the portable ones.
    shared = {
        name
        for name in set(dir(torch.cuda)) & set(dir(torch.xpu))
        if not name.startswith("_")
        and getattr(getattr(torch.xpu, name), "__module__", "").startswith("torch.xpu")
    }
    none_here = """
        get_arch_list get_gencode_flags clock_rate
        memory_usage power_draw temperature utilization change_current_allocator
        MemPool use_mem_pool graph graph_pool_handle make_graphed_callables
        get_stream_from_external
    """.split()
    assert shared - set(none_here) <= set(dir(torch.tpu)), (
        shared - set(none_here) - set(dir(torch.tpu))
    )


def test_submodules_can_be_imported():
    import torch.tpu.memory
    import torch.tpu.random
    from torch.tpu import streams
    from torch.tpu.amp import GradScaler
    from torch.tpu.cache import stats

    assert torch.tpu.memory.memory_allocated is torch.tpu.memory_allocated
    assert streams.Stream is torch.tpu.Stream and callable(stats)
    assert GradScaler is torch.tpu.amp.GradScaler


def test_availability_and_count():
    assert torch.tpu.is_available() and torch.tpu.is_bf16_supported()
    assert not torch.tpu.is_tf32_supported() and not torch.tpu.is_current_stream_capturing()
    assert torch.tpu.device_count() >= 1
    assert 0 <= torch.tpu.current_device() < torch.tpu.device_count()
    torch.tpu.init()
    assert torch.tpu.is_initialized() and torch.tpu._initialized


def test_properties():
    properties = torch.tpu.get_device_properties()
    assert properties == torch.tpu.get_device_properties("tpu:0")
    assert properties.total_memory > 2**28 and properties.core_count >= 1
    assert properties.multi_processor_count == properties.core_count
    assert torch.tpu.get_device_name(0) == properties.name != ""
    if properties.platform == "cpu":
        assert "cpu" in properties.name.lower()
    dtypes = torch.tpu.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.bool} <= dtypes
    assert torch.bfloat16 in torch.tpu.get_amp_supported_dtype()


def test_current_device_and_contexts():
    here = torch.tpu.current_device()
    torch.tpu.set_device("tpu:0")
    torch.tpu.set_device(torch.device("tpu", 0))
    torch.tpu.set_device(-1)
    with torch.tpu.device(0), torch.tpu.device(None), torch.tpu.device(-1):
        assert torch.tpu.current_device() == 0
    with torch.tpu.device_of(torch.ones(1)), torch.tpu.device_of(torch.ones(1, device="tpu")):
        assert torch.tpu.current_device() == 0
    torch.tpu.set_device(here)


@pytest.mark.parametrize("function", ["set_device", "device", "synchronize", "mem_get_info"])
def test_bad_devices(function):
    call = getattr(torch.tpu, function)
    with pytest.raises(RuntimeError, match=r"there is no device tpu:99; this process has tpu:0"):
        call(99)
    with pytest.raises(ValueError, match="expected a tpu device, got cpu"):
        call("cpu")
    with pytest.raises(TypeError, match="a device is a torch.device, str or int, got float"):
        call(1.5)


def test_bad_device_of_a_tensor():
    with pytest.raises(RuntimeError):
        torch.ones(1, device="tpu:99")
    with pytest.raises(RuntimeError):
        torch.ones(1).to("tpu:99")
    exact(torch.ones(1, device="tpu"), torch.ones(1))


def test_accelerator():
    acc = torch.accelerator
    assert acc.is_available() and acc.current_accelerator() == torch.device("tpu")
    assert acc.device_count() == torch.tpu.device_count()
    assert acc.current_device_index() == torch.tpu.current_device()
    acc.set_device_index(0)
    with acc.device_index(0):
        assert acc.current_device_index() == 0
    stream = acc.current_stream()
    acc.set_stream(stream)
    assert acc.current_stream() == stream == torch.tpu.current_stream()
    x = torch.ones(1024, device="tpu")
    acc.synchronize()
    assert acc.memory_allocated() == torch.tpu.memory_allocated() >= x.nbytes
    assert acc.max_memory_allocated() >= acc.memory_allocated()
    assert acc.memory_reserved() >= x.nbytes and acc.max_memory_reserved() >= x.nbytes
    assert acc.memory_stats()["allocated_bytes.all.current"] >= x.nbytes
    assert acc.get_memory_info() == pytest.approx(torch.tpu.mem_get_info(), rel=0.5)
    acc.reset_peak_memory_stats()
    acc.reset_accumulated_memory_stats()
    acc.empty_cache()
    assert torch.bfloat16 in acc.get_device_capability()["supported_dtypes"]


def test_torch_tpu_never_asks_torch_accelerator(monkeypatch):
    # torch.accelerator asks torch.tpu back: the other way round recurses without end.
    for name, value in vars(torch.accelerator).items():
        if inspect.isfunction(value):

            def fail(*args, _name=name, **kwargs):
                raise AssertionError(f"torch.accelerator.{_name} was called")

            monkeypatch.setattr(torch.accelerator, name, fail)
    assert torch.tpu.is_available() and torch.tpu.device_count()
    torch.tpu.set_device(torch.tpu.current_device())
    torch.tpu.synchronize()
    torch.tpu.memory_summary(), torch.tpu.mem_get_info(), torch.tpu.get_device_name()
    torch.tpu.manual_seed_all(1), torch.tpu.get_rng_state_all()
    with torch.tpu.stream(torch.tpu.Stream()):
        torch.tpu.Event().record(torch.tpu.current_stream())
    torch.tpu.empty_cache()


def test_generated_methods():
    x = torch.ones(3)
    y = x.tpu()
    assert y.is_tpu and not x.is_tpu and y.device == torch.device("tpu:0")
    assert y.tpu() is y and x.tpu(0).is_tpu and x.tpu(non_blocking=True).is_tpu
    layer = torch.nn.Linear(2, 2)
    assert layer.tpu() is layer and layer.weight.is_tpu
    storage = x.untyped_storage()
    assert storage.tpu().is_tpu and not storage.is_tpu and y.untyped_storage().is_tpu
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
    assert packed.tpu().is_tpu and not packed.is_tpu


def test_device_context_and_default_device():
    with torch.device("tpu"):
        assert torch.ones(1).is_tpu and torch.nn.Linear(1, 1).weight.is_tpu
    torch.set_default_device("tpu")
    try:
        assert torch.tensor([1, 2]).is_tpu
    finally:
        torch.set_default_device(None)
    assert torch.device(0).type == "tpu" and torch.ones(1, device=0).is_tpu


def test_module_can_be_pickled_and_copied():
    assert pickle.loads(pickle.dumps(torch.tpu)) is torch.tpu
    assert copy.deepcopy({"module": torch.tpu})["module"] is torch.tpu
    assert copy.copy(torch.tpu) is torch.tpu
    for value in (torch.tpu.synchronize, torch.tpu.Stream, torch.tpu.EagerMode.DEFER_AND_FUSE):
        assert pickle.loads(pickle.dumps(value)) is value


def test_enum_names():
    assert str(torch._C._autograd.DeviceType.TPU) == "DeviceType.TPU"
    assert str(torch.profiler.ProfilerActivity.TPU) == "ProfilerActivity.TPU"
    assert "tpu" in repr(torch.ones(1, device="tpu"))


def test_current_device_is_per_thread():
    out = run_python(
        """
        import threading, torch
        assert torch.tpu.device_count() == 2
        torch.tpu.set_device(1)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_device()))
        thread.start(), thread.join()
        print(seen, torch.tpu.current_device(), torch.ones(1, device="tpu").device)
        """,
        TORCH_TPU_CPU_DEVICE_COUNT="2",
        TORCH_TPU_PLATFORM="cpu",
    )
    assert out == "[0] 1 tpu:1\n"


def test_two_devices_in_one_process():
    out = run_python(
        """
        import torch
        a = torch.arange(6., device="tpu:0")
        b = a.to("tpu:1")
        assert (b.device.index, torch.equal(b.cpu(), a.cpu())) == (1, True)
        b += 1
        c = torch.empty(6, device="tpu:0").copy_(b)
        assert c.tolist() == [1, 2, 3, 4, 5, 6] and a.tolist() == [0, 1, 2, 3, 4, 5]
        try:
            a + b
        except RuntimeError as error:
            assert "tpu:0" in str(error) and "tpu:1" in str(error), error
        else:
            raise AssertionError("mixed devices")
        with torch.tpu.device(1):
            assert torch.ones(1, device="tpu").device.index == 1
            assert torch.tpu.current_stream().device.index == 1
            s = torch.tpu.Stream()
        assert s.device.index == 1
        with torch.tpu.stream(s):
            assert torch.tpu.current_device() == 1
        assert torch.tpu.current_device() == 0
        before = torch.tpu.memory_allocated(0), torch.tpu.memory_allocated(1)
        d = torch.zeros(1 << 18, device="tpu:1")
        torch.tpu.synchronize(1)
        assert torch.tpu.memory_allocated(0) == before[0]
        assert torch.tpu.memory_allocated(1) >= before[1] + d.nbytes
        torch.manual_seed(5)
        x, y = torch.rand(4, device="tpu:0"), torch.rand(4, device="tpu:1")
        assert torch.equal(x.cpu(), y.cpu()) and len(torch.tpu.get_rng_state_all()) == 2
        layer = torch.nn.Linear(6, 2).to("tpu:1")
        layer(b).sum().backward()
        assert layer.weight.grad.device.index == 1
        print("ok")
        """,
        TORCH_TPU_CPU_DEVICE_COUNT="2",
        TORCH_TPU_PLATFORM="cpu",
    )
    assert out == "ok\n"


def test_threads_start_the_runtime_once():
    out = run_python("""
        import threading, torch
        results = []
        def work(i):
            results.append(torch.full((3,), float(i), device="tpu").sum().item())
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        [t.start() for t in threads], [t.join() for t in threads]
        print(sorted(results))
    """)
    assert out == f"{[3.0 * i for i in range(8)]}\n"


def test_threads_share_the_device():
    errors = []

    def work(i):
        try:
            x = torch.full((32, 32), float(i), device="tpu")
            for _ in range(10):
                x = x + 1
            assert x[0, 0].item() == i + 10
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not errors


def test_sync_debug_mode():
    x = torch.ones(3, device="tpu")
    assert torch.tpu.get_sync_debug_mode() == 0
    try:
        torch.tpu.set_sync_debug_mode("warn")
        with pytest.warns(UserWarning, match="synchronizing"):
            assert (x + 1).sum().item() == 6
        torch.tpu.set_sync_debug_mode(2)
        assert torch.tpu.get_sync_debug_mode() == 2
        for read in (x.cpu, x.tolist, lambda: x.nonzero(), lambda: bool(x[0] > 0)):
            with pytest.raises(RuntimeError, match="synchronizing"):
                read()
        torch.tpu.synchronize()
        x.add_(1)
    finally:
        torch.tpu.set_sync_debug_mode("default")
    exact(x, torch.full((3,), 2.0))
    for bad in ("loud", 3):
        with pytest.raises(RuntimeError, match="debug_mode"):
            torch.tpu.set_sync_debug_mode(bad)


def test_peer_access():
    assert torch.tpu.can_device_access_peer(0, "tpu:0")
    with pytest.raises(AssertionError, match="Invalid device id 9"):
        torch.tpu.can_device_access_peer(0, 9)
