"""Memory statistics, out of memory."""

import gc

import pytest
import torch
from helpers import exact, run_python

MEGA = 2**20


def allocated():
    gc.collect()
    torch.tpu.synchronize()
    return torch.tpu.memory_allocated()


def test_allocation_is_counted_and_released(mode):
    before = allocated()
    x = torch.zeros(4 * MEGA // 4, device="tpu")
    y = x + 1
    assert allocated() - before == pytest.approx(8 * MEGA, rel=0.01)
    del x
    assert allocated() - before == pytest.approx(4 * MEGA, rel=0.01)
    del y
    assert allocated() - before < MEGA // 4


def test_copies_from_host_are_counted():
    before = allocated()
    x = torch.ones(MEGA, dtype=torch.uint8).to("tpu")
    assert allocated() - before == pytest.approx(MEGA, rel=0.05)
    view = x[5:].view(-1)
    assert allocated() - before == pytest.approx(MEGA, rel=0.05)
    del x, view
    assert allocated() - before < MEGA // 4


def test_in_place_work_takes_no_more_memory():
    x = torch.zeros(4 * MEGA // 4, device="tpu")
    x.add_(1)
    allocated()
    torch.tpu.reset_peak_memory_stats()
    before = torch.tpu.memory_allocated()
    for _ in range(4):
        x.add_(1)
    torch.tpu.synchronize()
    assert torch.tpu.max_memory_allocated() - before < MEGA
    exact(x[:3], torch.full((3,), 5.0))


def test_peak_and_its_reset():
    allocated()
    torch.tpu.reset_peak_memory_stats()
    base = torch.tpu.memory_allocated()
    x = torch.zeros(8 * MEGA // 4, device="tpu")
    torch.tpu.synchronize()
    del x
    allocated()
    assert torch.tpu.max_memory_allocated() >= base + 8 * MEGA
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() < base + MEGA
    torch.tpu.reset_max_memory_allocated()


def test_statistics_have_the_names_that_frameworks_read():
    x = torch.ones(MEGA // 4, device="tpu")
    torch.tpu.synchronize()
    stats = torch.tpu.memory_stats()
    for group in ("allocated_bytes", "active_bytes", "reserved_bytes", "allocation", "active"):
        for kind in ("current", "peak", "allocated", "freed"):
            assert isinstance(stats[f"{group}.all.{kind}"], int), (group, kind)
    assert stats["num_alloc_retries"] >= 0 and stats["num_ooms"] >= 0
    current, total = stats["allocated_bytes.all.current"], stats["allocated_bytes.all.allocated"]
    assert x.nbytes <= current <= stats["allocated_bytes.all.peak"]
    assert total - stats["allocated_bytes.all.freed"] == current
    assert torch.tpu.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == current
    torch.tpu.reset_accumulated_memory_stats()
    assert torch.tpu.memory_stats()["allocated_bytes.all.allocated"] < total


def test_summary():
    x = torch.ones(3 * MEGA // 4, device="tpu")
    torch.tpu.synchronize()
    text = torch.tpu.memory_summary()
    assert text.startswith("tpu:0 memory") and "MiB" in text and "freed" in text
    assert "freed" not in torch.tpu.memory_summary(abbreviated=True)
    del x


def test_free_and_total():
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total == torch.tpu.get_device_properties().total_memory
    assert torch.tpu.get_memory_info("tpu") == pytest.approx((free, total), rel=0.5)


def test_empty_cache_keeps_live_tensors():
    x = torch.arange(10.0, device="tpu")
    torch.tpu.empty_cache()
    torch.tpu.empty_host_cache()
    exact(x, torch.arange(10.0))


def test_out_of_memory(mode):
    kept = torch.arange(4.0, device="tpu")
    total = torch.tpu.get_device_properties().total_memory
    before = torch.tpu.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError) as error:
        live = [torch.zeros(2 * total, dtype=torch.uint8, device="tpu")]
        torch.tpu.synchronize(live[0].device)
    text = str(error.value)
    for part in (f"{2 * total / 2**30:.1f} GiB", f"of {total / 2**30:.1f} GiB", "free", "largest"):
        assert part in text, (part, text)
    assert isinstance(error.value, torch.tpu.OutOfMemoryError)
    assert torch.tpu.memory_stats()["num_ooms"] == before + 1
    exact(kept + 1, torch.arange(4.0) + 1)


def test_out_of_memory_names_the_line(tmp_path):
    script = tmp_path / "user_script.py"
    script.write_text("""import torch
torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
x = torch.zeros(4096, 1024, device="tpu")
x.sum().item()
try:
    y = x.repeat(8, 1)
    y.cpu()
except torch.OutOfMemoryError as error:
    print(error)
print(x.sum().item())
""")
    out = run_python(f"import runpy; runpy.run_path({str(script)!r})", TORCH_TPU_MEMORY_LIMIT="64M")
    assert out.endswith("0.0\n") and "user_script.py:6" in out and "MiB" in out, out


@pytest.mark.parametrize("size", [2**50, 2**62])
def test_sizes_beyond_any_memory(size):
    with pytest.raises(torch.OutOfMemoryError, match=str(size)):
        torch.empty(size, dtype=torch.uint8, device="tpu")
    with pytest.raises(RuntimeError):
        torch.empty(2**62, 2**62, device="tpu")


def test_a_fraction_of_the_memory():
    total = torch.tpu.get_device_properties().total_memory
    assert torch.tpu.get_per_process_memory_fraction() == 1.0
    x = torch.ones(1024, device="tpu")
    torch.tpu.synchronize()
    try:
        torch.tpu.set_per_process_memory_fraction(0.0)
        with pytest.raises(torch.OutOfMemoryError, match="of 0 B are free"):
            (x + 1).cpu()
        with pytest.raises(torch.OutOfMemoryError, match="a copy needs 4.0 KiB"):
            torch.ones(1024).to("tpu")
        assert torch.tpu.mem_get_info()[1] == total
    finally:
        torch.tpu.set_per_process_memory_fraction(1.0)
    exact(x + 1, torch.full((1024,), 2.0))
    for bad, kind in ((2, TypeError), (1.5, ValueError), (-0.1, ValueError)):
        with pytest.raises(kind):
            torch.tpu.set_per_process_memory_fraction(bad)


def test_snapshot_lists_live_storages():
    x = torch.ones(300, 7, device="tpu", dtype=torch.bfloat16)
    torch.tpu.synchronize()
    address = x.untyped_storage().data_ptr()
    (segment,) = [s for s in torch.tpu.memory_snapshot() if s["address"] == address]
    assert segment["total_size"] == 4200 and segment["blocks"][0]["size"] == 4200
    assert segment["blocks"][0]["type"] == "bfloat16[300, 7]"
    assert torch.tpu.device_memory_used() == torch.tpu.memory_allocated()
    del x
    assert address not in [s["address"] for s in torch.tpu.memory_snapshot()]
