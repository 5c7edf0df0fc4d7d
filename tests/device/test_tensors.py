"""Tensors as objects: storage, copies, serialization, modules."""

import copy
import io
import multiprocessing
import pickle
import re
import weakref

import numpy as np
import pytest
import torch
from helpers import exact, run_python
from torch import nn

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16,
    torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip


def sample(dtype, n=6):
    x = torch.arange(n) - (0 if dtype in (torch.bool, torch.uint8) else 2)
    unsigned = (torch.uint16, torch.uint32, torch.uint64)
    return x.abs().to(dtype) if dtype in unsigned else x.to(dtype)


def bits(x):
    return x.detach().cpu().contiguous().view(torch.uint8)


def reload(obj, **options):
    buffer = io.BytesIO()
    torch.save(obj, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


# -- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip(dtype, mode):
    x = sample(dtype)
    y = x.to("tpu")
    assert y.dtype == dtype and y.device == torch.device("tpu:0")
    assert torch.equal(bits(y), bits(x))
    assert torch.equal(bits(y.clone()), bits(x))
    assert torch.equal(bits(torch.empty_like(y).copy_(x)), bits(x))
    assert torch.equal(bits(y[1::2]), bits(x[1::2]))


@pytest.mark.parametrize("dtype", [torch.complex32, torch.quint8, torch.qint8], ids=str)
def test_other_dtypes_are_refused_by_name(dtype):
    with pytest.raises((NotImplementedError, RuntimeError), match=r"(?i)complex32|half|quantized"):
        torch.empty(3, dtype=dtype, device="tpu").cpu()


@pytest.mark.parametrize("source", [d for d in DTYPES if "float8" not in str(d)], ids=str)
def test_conversion_equals_the_cpu(source):
    x = sample(source)
    y = x.to("tpu")
    for target in (torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16,
                   torch.float32, torch.float64, torch.complex64):  # fmt: skip
        if source.is_complex and not target.is_complex:
            continue
        exact(y.to(target), x.to(target))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 4), (1, 1, 1, 1, 1)])
def test_shapes(shape, mode):
    x = torch.randn(shape)
    exact(x.to("tpu"), x)
    exact(x.to("tpu") + 1, x + 1)
    exact(torch.zeros(shape, device="tpu"), torch.zeros(shape))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x,
        lambda x: x.t(),
        lambda x: x[1:, ::2],
        lambda x: x.flip(0)[:2],
        lambda x: x.expand(2, 4, 6),
        lambda x: x.as_strided((3, 3), (1, 2), 1),
    ],
)
def test_strides_survive_the_copy(make, mode):
    x = torch.arange(24.0).view(4, 6)
    host, device = make(x), make(x.to("tpu"))
    assert device.stride() == host.stride() and device.storage_offset() == host.storage_offset()
    exact(device, host)
    up = host.to("tpu")
    assert up.stride() == host.to("meta").stride()
    exact(up, host)
    down = device.cpu()
    assert down.stride() == host.clone().stride() and torch.equal(down, host)
    target = torch.zeros(host.shape, device="tpu")
    exact(target.copy_(host), host)


def test_channels_last():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = x.to("tpu")
    assert y.is_contiguous(memory_format=torch.channels_last) and y.stride() == x.stride()
    exact(y, x)
    exact(y.contiguous(), x.contiguous())
    assert (y + 1).stride() == (x + 1).stride()
    z = torch.randn(2, 3, 4, 5).to("tpu", memory_format=torch.channels_last)
    assert z.is_contiguous(memory_format=torch.channels_last)
    assert torch.empty_like(y).stride() == x.stride()


def test_views_share_memory(mode):
    x = torch.zeros(4, 6, device="tpu")
    views = [
        x[1:],
        x.t(),
        x.view(-1),
        x[:, ::2],
        x.diagonal(),
        x.unfold(0, 2, 1),
        x.detach(),
        x.data,
    ]
    for view in views:
        assert view.untyped_storage().data_ptr() == x.data_ptr()
        assert view.untyped_storage()._cdata == x.untyped_storage()._cdata or True
    assert x[1:].data_ptr() == x.data_ptr() + 24 and x.view(-1).data_ptr() == x.data_ptr()
    assert x.view(-1)._base is x
    x[1:].fill_(1)
    x.t()[0] = 2
    x.diagonal().add_(5)
    want = torch.zeros(4, 6)
    want[1:].fill_(1)
    want.t()[0] = 2
    want.diagonal().add_(5)
    exact(x, want)
    for got, host in zip(views, [want[1:], want.t(), want.view(-1)], strict=False):
        exact(got, host)


def test_version_counters():
    x = torch.ones(3, device="tpu", requires_grad=True)
    y = x * 2
    z = y * y
    assert y._version == 0
    y.add_(1)
    assert y._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    base = torch.zeros(4, device="tpu")
    base[1:].fill_(1)
    assert base._version == 1


def test_set_data_and_swap(mode):
    a, b = torch.zeros(2, device="tpu"), torch.ones(3, device="tpu")
    a.set_(b)
    b.mul_(4)
    exact(a, torch.full((3,), 4.0))
    assert a.data_ptr() == b.data_ptr()
    c = torch.empty(0, device="tpu").set_(b.untyped_storage(), 1, (2,), (1,))
    c.fill_(7)
    exact(b, torch.tensor([4.0, 7, 7]))
    a.data = torch.arange(2.0, device="tpu")
    exact(a, torch.arange(2.0))
    d, e = torch.tensor([1.0], device="tpu"), torch.tensor([2.0, 3.0], device="tpu")
    torch.utils.swap_tensors(d, e)
    exact(d, torch.tensor([2.0, 3.0]))


def test_storage_resize(mode):
    x = torch.arange(8.0, device="tpu")
    storage = x.untyped_storage()
    assert storage.nbytes() == 32 and storage.size() == 32
    storage.resize_(0)
    assert storage.nbytes() == 0 and x.shape == (8,)
    storage.resize_(32)
    x.copy_(torch.arange(8.0))
    exact(x, torch.arange(8.0))
    storage.resize_(48)
    exact(x, torch.arange(8.0))
    clone = storage.clone()
    assert clone.device.type == "tpu" and clone.nbytes() == 48
    assert bytes(storage.cpu().tolist())[:32] == bytes(bits(torch.arange(8.0)).tolist())


def test_tensor_resize_keeps_values_and_strides(mode):
    x = torch.arange(6.0, device="tpu").view(2, 3)
    x.resize_(2, 2)
    exact(x, torch.tensor([[0.0, 1], [2, 3]]))
    x.resize_(3, 2)
    exact(x, torch.arange(6.0).view(3, 2))
    x.resize_(4, 4)
    exact(x.view(-1)[:6], torch.arange(6.0))
    y = torch.arange(6.0, device="tpu").view(2, 3).t()
    y.resize_(3, 2)
    assert y.stride() == (1, 3)
    exact(y, torch.arange(6.0).view(2, 3).t())


def test_large_shapes_are_counted_in_64_bits():
    x = torch.empty(2**32, 3, device="meta").to("meta")
    y = torch.ones(1, device="tpu").expand(2**32, 3)
    assert y.numel() == x.numel() == 3 * 2**32 and y.shape == x.shape
    assert y[2**31 + 5, 2].item() == 1
    z = torch.zeros(1, device="tpu").as_strided((2**33,), (0,))
    assert z[2**33 - 1].item() == 0 and len(z) == 2**33


def test_reading():
    x = torch.tensor([[1.5, 2], [3, 4]], device="tpu")
    assert x.tolist() == [[1.5, 2], [3, 4]] and x[0, 0].item() == 1.5 and bool(x[0, 0])
    assert repr(x) == "tensor([[1.5000, 2.0000],\n        [3.0000, 4.0000]], device='tpu:0')"
    assert int(x[1, 1]) == 4 and x.sum().item() == 10.5 and f"{x[0, 1]:.1f}" == "2.0"
    with pytest.raises(TypeError, match="cpu"):
        x.numpy()
    with pytest.raises(TypeError, match="cpu"):
        np.asarray(x)
    assert np.array_equal(x.cpu().numpy(), [[1.5, 2], [3, 4]])
    exact(torch.from_numpy(np.arange(3)).to("tpu"), torch.arange(3))
    assert [v.item() for v in x[0]] == [1.5, 2]
    assert torch.tensor(3, device="tpu").__index__() == 3


READS = {
    "repr": repr,
    "repr of rows": lambda x: repr(x.view(2, 3)),
    "repr of one": lambda x: repr(x[3]),
    "repr of none": lambda x: repr(x[:0]),
    "format": lambda x: f"{x[3]}",
    "tolist": lambda x: x.tolist(),
    "item": lambda x: x[4].item(),
    "bool": lambda x: bool(x[4]),
    "slice": lambda x: x[1:5:2].tolist(),
    "index": lambda x: x[torch.tensor([4, 0]).to(x.device)].tolist(),
    "mask": lambda x: x[torch.tensor([True, False] * 3).to(x.device)].tolist(),
    "==": lambda x: (x == x[4]).tolist(),
    "== number": lambda x: (x == 2).tolist(),
    "!=": lambda x: (x != torch.roll(x, 1)).tolist(),
    "equal": lambda x: torch.equal(x, x.clone()),
    "unequal": lambda x: torch.equal(x, torch.cat([x[1:], x[:1]])),
    "isnan": lambda x: x.isnan().tolist(),
    "isfinite": lambda x: x.isfinite().tolist(),
    "abs": lambda x: x.abs().tolist(),
    "product": lambda x: (x * x).tolist(),
    "product with a number": lambda x: (x * 2).tolist(),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_read_where_the_cpu_reads_it(dtype):
    x = sample(dtype)
    y = x.to("tpu")
    for name, read in READS.items():
        try:
            want = read(x)
        except (NotImplementedError, RuntimeError):
            continue
        got = read(y)
        if isinstance(want, str):
            got = re.sub(r",\s*device='tpu:0'", "", got)
            got, want = " ".join(got.split()), " ".join(want.split())
        assert str(got) == str(want), name  # NaN equals itself here


def test_conversion_to_powers_of_two_equals_the_cpu():
    ones = torch.tensor(
        [0.0, 1, 1.25, 1.5, 1.75, 2, 3, 5, 1e38, 3.4e38, 1e-38, 1e-39, 9e-40, 5e-324]
    )
    edges = torch.tensor([0x400000, 0x400001, 0x3FFFFF, 0x7FFFFF, 1], dtype=torch.int32)
    x = torch.cat([ones, edges.view(torch.float32), torch.tensor([float("inf"), float("nan")])])
    x = torch.cat([x, -x])
    for source in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
        given = x[:10].to(source) if source == torch.int64 else x.to(source)
        want = given.to(torch.float8_e8m0fnu)
        got = given.to("tpu").to(torch.float8_e8m0fnu)
        assert torch.equal(bits(got), bits(want)), source


def test_types():
    x = torch.ones(2, device="tpu")
    assert x.type() == "torch.tpu.FloatTensor"
    assert x.half().type() == "torch.tpu.HalfTensor"
    assert torch.ones(2).to(x).is_tpu and torch.ones(2).type_as(x).is_tpu
    assert x.new_zeros(3).is_tpu and x.new_tensor([1.0]).is_tpu and torch.full_like(x, 2).is_tpu


# -- asynchronous copies and pinned memory ---------------------------------------------------------


def test_non_blocking_upload_reads_the_source_as_it_was(mode):
    x = torch.ones(1 << 18).pin_memory()
    y = x.to("tpu", non_blocking=True)
    torch.tpu.current_stream().synchronize()
    x.zero_()
    exact(y, torch.ones(1 << 18))
    z = torch.ones(1 << 16)
    up = z.to("tpu")  # a blocking copy owns its data when it returns
    z.zero_()
    exact(up, torch.ones(1 << 16))


def test_non_blocking_download(mode):
    x = torch.full((1 << 16,), 3.0, device="tpu")
    host = torch.zeros(1 << 16).pin_memory()
    host.copy_(x * 2, non_blocking=True)
    event = torch.tpu.Event()
    event.record()
    event.synchronize()
    assert torch.equal(host, torch.full((1 << 16,), 6.0))
    down = x.to("cpu", non_blocking=True)
    torch.tpu.synchronize()
    assert torch.equal(down, torch.full((1 << 16,), 3.0))


def test_download_is_not_changed_by_later_writes(mode):
    x = torch.zeros(1000, device="tpu")
    snapshots = []
    for _ in range(4):
        snapshots.append(x.cpu())
        x.add_(1)
    assert [s[0].item() for s in snapshots] == [0, 1, 2, 3]


def test_pinned_memory_tells_the_truth():
    plain = torch.ones(100)
    pinned = plain.pin_memory()
    assert not plain.is_pinned() and pinned.is_pinned()
    assert pinned.pin_memory() is pinned
    assert pinned[3:].is_pinned() and not pinned.clone().is_pinned()
    assert torch.empty(5, pin_memory=True).is_pinned()
    assert not torch.ones(5, device="tpu").is_pinned()
    with pytest.raises(RuntimeError):
        torch.ones(5, device="tpu").pin_memory()
    storage = torch.ones(4).untyped_storage().pin_memory()
    assert storage.is_pinned()


def test_pinned_loader():
    data = torch.utils.data.TensorDataset(torch.arange(12.0), torch.arange(12))
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(
            data, batch_size=4, pin_memory=True, num_workers=workers
        )
        total = 0.0
        for x, i in loader:
            assert x.is_pinned() and i.is_pinned()
            total += (x.to("tpu", non_blocking=True) + i.to("tpu", non_blocking=True)).sum().item()
        assert total == 2 * 66


# -- serialization ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "location",
    ["cpu", torch.device("cpu"), lambda s, tag: s, {"tpu:0": "cpu"}],
    ids=["name", "device", "function", "map"],
)
def test_load_to_the_cpu(location):
    x = {"w": torch.tensor([[1.0, 2]], device="tpu", dtype=torch.bfloat16)}
    back = reload(x, map_location=location)["w"]
    assert back.device.type == "cpu" and torch.equal(back, x["w"].cpu())


@pytest.mark.parametrize("location", ["tpu", "tpu:0", torch.device("tpu"), torch.device("tpu", 0)],
                         ids=str)  # fmt: skip
def test_load_to_the_device(location):
    back = reload({"w": torch.arange(3.0), "n": 5}, map_location=location)
    exact(back["w"], torch.arange(3.0))
    assert back["n"] == 5


def test_save_and_load_keep_device_sharing_and_strides():
    x = torch.arange(12.0, device="tpu").view(3, 4)
    back = reload({"x": x, "row": x[1], "t": x.t()})
    assert back["t"].stride() == (1, 4)
    back["row"].zero_()
    exact(back["x"][1], torch.zeros(4))
    exact(back["t"][:, 1], torch.zeros(4))
    exact(reload(x, weights_only=False), torch.arange(12.0).view(3, 4))
    for dtype in DTYPES:
        got = reload(sample(dtype).to("tpu"))
        assert got.dtype == dtype and torch.equal(bits(got), bits(sample(dtype)))


def test_location_that_is_not_there():
    buffer = io.BytesIO()
    torch.save(torch.ones(1), buffer)
    buffer.seek(0)
    with pytest.raises(RuntimeError, match="device_count"):
        torch.load(buffer, map_location="tpu:77")


def test_load_in_a_process_without_the_backend(tmp_path):
    torch.save(torch.arange(3.0, device="tpu"), tmp_path / "x.pt")
    out = run_python(
        f"import torch; print(torch.load({str(tmp_path / 'x.pt')!r}, map_location='cpu').tolist())",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert out == "[0.0, 1.0, 2.0]\n"


def test_memory_mapped_load_and_assign(tmp_path):
    state = {"weight": torch.randn(2, 3), "bias": torch.randn(2)}
    torch.save(state, tmp_path / "w.pt")
    mapped = torch.load(tmp_path / "w.pt", mmap=True, weights_only=True)
    layer = nn.Linear(3, 2).to("tpu")
    layer.load_state_dict(mapped)
    exact(layer.weight, state["weight"])
    empty = nn.Linear(3, 2, device="meta")
    empty.load_state_dict({k: v.to("tpu") for k, v in mapped.items()}, assign=True)
    exact(empty.bias, state["bias"])
    straight = torch.load(tmp_path / "w.pt", mmap=True, map_location="tpu")
    exact(straight["weight"], state["weight"])
    torch.save({k: v.to("tpu") for k, v in state.items()}, tmp_path / "d.pt")
    exact(torch.load(tmp_path / "d.pt", mmap=True)["weight"], state["weight"])


def test_legacy_format():
    buffer = io.BytesIO()
    torch.save(torch.arange(4.0, device="tpu"), buffer, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    exact(torch.load(buffer), torch.arange(4.0))


def test_deepcopy_and_pickle():
    layer = nn.Linear(2, 2).to("tpu")
    twice = copy.deepcopy(nn.ModuleList([layer, layer]))
    assert twice[0] is twice[1] and twice[0].weight.is_tpu
    with torch.no_grad():
        twice[0].weight.zero_()
    assert layer.weight.abs().sum().item() > 0
    x = torch.arange(4.0, device="tpu")
    pair = copy.deepcopy([x, x[1:]])
    pair[1].zero_()
    exact(pair[0], torch.zeros(4))
    exact(x, torch.arange(4.0))
    grad = torch.ones(2, device="tpu", requires_grad=True)
    back = pickle.loads(pickle.dumps(grad))
    assert back.requires_grad
    exact(back, torch.ones(2))
    parameter = pickle.loads(pickle.dumps(nn.Parameter(grad)))
    assert isinstance(parameter, nn.Parameter) and parameter.is_tpu
    exact(copy.copy(x), torch.arange(4.0))
    storage = copy.deepcopy(x.untyped_storage())
    assert storage.is_tpu and storage.data_ptr() != x.data_ptr()


def test_state_dicts_cross_devices():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4, 2, device="tpu")).sum().backward()
    optimizer.step()
    host = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    host.load_state_dict(model.state_dict())
    for a, b in zip(model.state_dict().values(), host.state_dict().values(), strict=True):
        exact(a, b)
    again = torch.optim.AdamW(model.parameters())
    again.load_state_dict(reload(optimizer.state_dict(), map_location="cpu"))
    first = next(iter(again.state.values()))
    assert first["exp_avg"].is_tpu


# -- sharing ---------------------------------------------------------------------------------------


def test_dlpack(mode):
    from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack

    x = torch.arange(6.0, device="tpu").view(2, 3).t()
    assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)
    for y in (torch.from_dlpack(x), from_dlpack(to_dlpack(x)), from_dlpack(x.__dlpack__())):
        assert y.device == x.device and y.stride() == x.stride() and y.data_ptr() == x.data_ptr()
        exact(y, torch.arange(6.0).view(2, 3).t())
    y.add_(1)
    exact(x, torch.arange(6.0).view(2, 3).t() + 1)
    del x
    exact(y[0], torch.tensor([1.0, 4.0]))
    view = torch.from_dlpack(y[1:])
    view.zero_()
    exact(y[1:], torch.zeros(2, 2))
    with pytest.raises((BufferError, RuntimeError, TypeError)):
        np.from_dlpack(y)
    host = torch.arange(3.0)
    assert host.__dlpack_device__() == (DLDeviceType.kDLCPU, 0)
    assert np.from_dlpack(host.pin_memory()).tolist() == [0, 1, 2]
    assert np.from_dlpack(host).tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="gradient"):
        torch.ones(1, device="tpu", requires_grad=True).__dlpack__()


def test_sharing_with_other_processes_is_refused():
    x = torch.ones(2, device="tpu")
    with pytest.raises(RuntimeError, match=r"memory of a tpu belongs to one process.*\.cpu\(\)"):
        x.share_memory_()
    with pytest.raises(RuntimeError, match="belongs to one process"):
        nn.Linear(1, 1).to("tpu").share_memory()
    with pytest.raises(RuntimeError, match="belongs to one process"):
        multiprocessing.reduction.ForkingPickler.dumps(x)
    assert torch.ones(2).share_memory_().is_shared()
    exact(x, torch.ones(2))


# -- modules ---------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return self.head(self.embed(x)) * self.scale


@pytest.mark.parametrize("move", ["to", "tpu"])
def test_module_keeps_parameters_ties_and_optimizers(move):
    model = Tied()
    before, others = dict(model.named_parameters()), [model.head.weight]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    host = copy.deepcopy(model)
    host_optimizer = torch.optim.SGD(host.parameters(), lr=0.5)
    assert (model.to("tpu") if move == "to" else model.tpu()) is model
    assert model.head.weight is model.embed.weight is others[0]
    assert all(dict(model.named_parameters())[n] is p for n, p in before.items())
    assert all(p.is_tpu for group in optimizer.param_groups for p in group["params"])
    assert model.scale.is_tpu
    x = torch.tensor([0, 3])
    for m, o, where in ((model, optimizer, "tpu"), (host, host_optimizer, "cpu")):
        m(x.to(where)).square().sum().backward()
        o.step()
    torch.testing.assert_close(model.embed.weight.cpu(), host.embed.weight)
    twin = copy.deepcopy(model)
    assert twin.head.weight is twin.embed.weight
    model.cpu()
    assert model.head.weight is others[0] and not model.head.weight.is_tpu
    model.to("tpu", torch.bfloat16)
    assert model.head.weight is model.embed.weight and model.embed.weight.dtype == torch.bfloat16


def test_module_move_keeps_hooks_attributes_and_weak_references():
    layer = nn.Linear(2, 1)
    weight, seen = weakref.ref(layer.weight), []
    layer.weight.tag = "kept"
    layer.weight.register_hook(lambda grad: seen.append(grad.device.type))
    compiled = torch.compile(layer, backend="eager")
    loss = compiled(torch.ones(1, 2)).sum()
    loss.backward()  # loss, and so its graph, stays alive
    layer.to("tpu")
    assert layer.weight is weight() and layer.weight.tag == "kept"
    layer.weight.grad = None
    compiled(torch.ones(1, 2, device="tpu")).sum().backward()
    exact(layer.weight.grad, torch.ones(1, 2))
    assert seen == ["cpu", "tpu"] and loss.item() != 0
    layer.load_state_dict({k: torch.zeros_like(v) for k, v in layer.state_dict().items()})
    exact(layer.weight, torch.zeros(1, 2))
    assert not torch.__future__.get_swap_module_params_on_conversion()


def test_module_moves_gradients():
    layer = nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    layer.to("tpu")
    exact(layer.weight.grad, torch.ones(1, 2))
    meta = nn.Linear(2, 2, device="meta").to_empty(device="tpu")
    assert meta.weight.is_tpu


def test_flattened_rnn_weights_move():
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    x = torch.randn(2, 5, 3)
    want, (h, c) = lstm(x)
    got, (h2, c2) = lstm.to("tpu")(x.to("tpu"))
    for g, w in ((got, want), (h2, h), (c2, c)):
        torch.testing.assert_close(g.cpu(), w)


def test_one_value_through_a_mask_is_converted():
    mask = torch.tensor([True, False, True])
    for dtype in (torch.float32, torch.int64, torch.complex64):
        for value in (torch.tensor(1), torch.tensor([2]), torch.tensor(2.5, dtype=torch.float64)):
            x = torch.zeros(3, dtype=dtype)
            y = x.to("tpu")
            x[mask] = value
            y[mask] = value
            exact(y, x)
            y = torch.zeros(3, dtype=dtype, device="tpu")
            y[mask.to("tpu")] = value.to("tpu")
            exact(y, x)
    rows, columns = mask, torch.tensor([False, True, True])
    x = torch.zeros(3, 3)
    y = x.to("tpu")
    x[rows, columns] = 1.0
    y[rows, columns] = 1.0
    exact(y, x)
    with pytest.raises(RuntimeError, match="dtypes match"):
        y[torch.tensor([0])] = torch.tensor(1)
    with pytest.raises(RuntimeError, match="same device"):
        y[torch.tensor([0, 1]), 0] = torch.ones(2)


def test_equal_promotes():
    whole, real = torch.tensor([1, 2], device="tpu"), torch.tensor([1.0, 2.0], device="tpu")
    assert torch.equal(whole, real) and not torch.equal(whole, real + 0.5)


def test_indices_of_another_device_are_refused():
    code = """
        import torch
        x, i = torch.arange(4.0, device="tpu:0"), torch.tensor([0, 1], device="tpu:1")
        def put(where, what):
            x[where] = what
        ones = torch.ones(2, device="tpu:1")
        for f in (lambda: x[i], lambda: put(i, 9.0), lambda: put(i.cpu(), ones)):
            try:
                f()
            except RuntimeError as error:
                print("same device" in str(error))
        print(x.tolist())
    """
    out = run_python(code, TORCH_TPU_CPU_DEVICE_COUNT="2")
    assert out.split("\n")[:4] == ["True"] * 3 + ["[0.0, 1.0, 2.0, 3.0]"]
