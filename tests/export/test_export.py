"""Exported programs compute what their modules do: loaded here, in another process, and in jax."""

import dataclasses
import json
import re
import warnings
import zipfile

import numpy as np
import pytest
import torch
from helpers import run_python
from torch import nn
from torch.utils import _pytree as pytree

import torch_tpu
from torch_tpu import _C
from torch_tpu.package import Exported, ExportError, PackageError, _exported


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()


class State(nn.Module):
    """Containers, keywords, constants, tied weights, what is written, what is given back."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(()))
        self.shift = torch.ones(4)

    def forward(self, x, *, extra=None, factor=3):
        self.calls.add_(1)
        x.mul_(2)
        y = self.norm(self.two(self.one(x) + self.shift + torch.arange(4))) * factor
        return {"y": y, "none": None, "factor": factor, "more": (y.sum(), x, x.t(), y)}, extra[
            0
        ] + 1


class Noise(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, True) + torch.randn_like(x)


class Pick(nn.Module):
    def forward(self, x, index):
        return x[index]


@pytest.mark.parametrize("weights", ["apart", "inside"])
def test_a_module_of_many_kinds_of_arguments(weights, tmp_path):
    module = State().train()
    x, extra = torch.randn(3, 4), [torch.ones(2)]
    exported = torch_tpu.export(module, (x,), {"extra": extra, "factor": 5}, weights=weights)
    loaded = torch_tpu.load_package(exported.save(tmp_path / "state.tpt2"))
    written = {"calls", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    tied = {"one.weight", "two.weight"}
    everything = {*dict(module.named_parameters()), *written, "shift"} - tied
    assert set(loaded.weights) - tied == (everything if weights == "apart" else written)
    assert len(tied & set(loaded.weights)) == (weights == "apart")
    for _ in range(2):
        here, there = x.clone(), x.clone().to("tpu")
        want, want_sum = module(here, extra=extra, factor=5)
        got, got_sum = loaded(there, extra=[extra[0].to("tpu")], factor=5)
        assert list(got) == list(want) and got["none"] is None and got["factor"] == 5
        assert got["more"][1] is there and got["more"][3] is got["y"]
        torch.testing.assert_close(there.cpu(), here)
        torch.testing.assert_close(got_sum.cpu(), want_sum)
        for a, b in zip((got["y"], *got["more"]), (want["y"], *want["more"]), strict=True):
            torch.testing.assert_close(a.cpu(), b.detach())
    for name, buffer in module.named_buffers():
        torch.testing.assert_close(loaded.weights[name].cpu(), buffer)


def test_programs_of_torch_export_before_and_after_decompositions():
    module, x = State().train(), torch.randn(3, 4)
    kwargs = {"extra": [torch.ones(2)], "factor": 3}
    program = torch.export.export(module, (x.clone(),), kwargs)
    want, _ = module(x.clone(), **kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        decomposed = program.run_decompositions({})
    for p in (program, decomposed):
        exported = torch_tpu.export(p)
        got, _ = exported(x.clone().to("tpu"), extra=[torch.ones(2, device="tpu")], factor=3)
        torch.testing.assert_close(got["y"].cpu(), want["y"].detach())


def test_strides_of_arguments_do_not_matter(tmp_path):
    module = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
    exported = torch_tpu.export(module, (x,))
    assert exported.signature.arguments[0].shape == (4, 3, 3, 3)
    for like in (x, x.contiguous()):
        torch.testing.assert_close(exported(like.to("tpu")).cpu(), module(like).detach())


def test_random_numbers_are_those_of_eager_mode(tmp_path):
    loaded = torch_tpu.load_package(
        torch_tpu.export(Noise(), (torch.ones(50),)).save(tmp_path / "noise.tpt2")
    )
    x = torch.ones(50, device="tpu")
    torch.manual_seed(3)
    want = [Noise()(x), Noise()(x)]
    after = torch.tpu.get_rng_state()
    torch.manual_seed(3)
    got = [loaded(x), loaded(x)]
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert torch.equal(torch.tpu.get_rng_state(), after)


def test_what_the_program_asserts_is_an_error_at_the_read():
    exported = torch_tpu.export(Pick(), (torch.ones(5), torch.tensor([1, 2])))
    x = torch.arange(5.0, device="tpu")
    assert exported(x, torch.tensor([1, 4], device="tpu")).tolist() == [1, 4]
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 5"):
        exported(x, torch.tensor([1, 7], device="tpu")).cpu()


def test_a_weight_that_is_written_changes_the_next_call(tmp_path):
    module, x = mlp(), torch.randn(3, 8)
    loaded = torch_tpu.load_package(torch_tpu.export(module, (x,)).save(tmp_path / "mlp.tpt2"))
    loaded.weights["2.bias"].add_(1)
    torch.testing.assert_close(loaded(x.to("tpu")).cpu(), module(x).detach() + 1)


def test_memory_of_what_is_updated_is_not_held_twice(tmp_path):
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(1 << 18))

        def forward(self, x):
            self.cache.add_(x)
            return self.cache[:1].clone()

    loaded = torch_tpu.load_package(
        torch_tpu.export(Cache(), (torch.ones(1),)).save(tmp_path / "cache.tpt2")
    )
    shared = loaded.weights["cache"].clone()  # clone shares the value: it must stay as it is
    one = torch.ones(1, device="tpu")
    assert loaded(one).item() == 1 and shared[0].item() == 0
    del shared
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    torch.tpu.reset_peak_memory_stats()
    assert loaded(one).item() == 2
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() == before
    assert torch.tpu.max_memory_allocated() < before + (1 << 20) + 4096


class Branch(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))


class Loop(nn.Module):
    def forward(self, x):
        return torch.while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (x.new_zeros(()), x)
        )


class Scan(nn.Module):
    def forward(self, x):
        return torch._higher_order_ops.scan(
            lambda carry, y: (carry + y, carry * y), torch.zeros(4), x
        )


@pytest.mark.parametrize("module", [Branch(), Loop(), Scan()], ids=lambda m: type(m).__name__)
def test_control_flow_is_that_of_the_program(module, tmp_path):
    exported = torch_tpu.export(module, (torch.ones(3, 4),))
    assert re.search(r"stablehlo\.(if|case|while)\b", exported.stablehlo)
    loaded = torch_tpu.load_package(exported.save(tmp_path / "flow.tpt2"))
    for x in (torch.rand(3, 4), -torch.rand(3, 4)):
        want, got = module(x), loaded(x.to("tpu"))
        for a, b in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
            torch.testing.assert_close(a.cpu(), b)


# -- files -------------------------------------------------------------------------------------


def test_another_process_compiles_and_traces_nothing(tmp_path):
    module, x = mlp(), torch.randn(3, 8)
    path = torch_tpu.export(module, (x,)).save(tmp_path / "mlp.tpt2")
    np.save(tmp_path / "x.npy", x.numpy())
    out = run_python(
        f"""
        import json
        import numpy as np, torch, torch_tpu
        x = torch.from_numpy(np.load({str(tmp_path / "x.npy")!r})).to("tpu")
        loaded = torch_tpu.load_package({str(path)!r})
        y = loaded(x).cpu()
        c = torch_tpu.debug.counters()
        print(json.dumps([y.tolist(), c["compiles"], c["disk_hits"], c["nodes"], c["executes"],
                          loaded.why_compiled]))
        """,
        TORCH_TPU_DISK_CACHE="0",
    )
    y, compiles, disk_hits, nodes, executes, why = json.loads(out)
    assert (compiles, disk_hits, nodes, executes, why) == (0, 0, 0, 1, "")
    torch.testing.assert_close(torch.tensor(y), module(x).detach())


def test_an_executable_for_another_processor_is_not_run(tmp_path):
    module, x = mlp(), torch.randn(3, 8)
    path = torch_tpu.export(module, (x,)).save(tmp_path / "mlp.tpt2")
    other = tmp_path / "other.tpt2"
    with zipfile.ZipFile(path) as a, zipfile.ZipFile(other, "w") as b:
        for name in a.namelist():
            data = a.read(name)
            if name == "executable":  # the identity follows the magic line
                at = data.index(b"\n") + 1
                data = data[:at] + b"0" * 32 + data[at + 32 :]
            b.writestr(name, data)
    loaded = torch_tpu.load_package(other)
    assert "another plugin build or for another processor" in loaded.why_compiled
    torch.testing.assert_close(loaded(x.to("tpu")).cpu(), module(x).detach())


def test_a_package_without_executable_is_compiled_when_loaded(tmp_path):
    module, x = mlp(), torch.randn(3, 8)
    path = torch_tpu.export(module, (x,)).save(tmp_path / "mlp.tpt2", executable=False)
    loaded = torch_tpu.load_package(path)
    assert loaded.why_compiled == "the package holds no executable"
    torch.testing.assert_close(loaded(x.to("tpu")).cpu(), module(x).detach())


def test_the_package_is_a_plain_zip_and_its_weights_are_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    module = mlp()
    path = torch_tpu.export(module, (torch.randn(3, 8),)).save(tmp_path / "mlp.tpt2")
    with zipfile.ZipFile(path) as archive:
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_STORED}
        weights = safetensors.load(archive.read("weights.safetensors"))
        assert json.loads(archive.read("package.json"))["format"] == 1
    for name, value in module.state_dict().items():
        assert torch.equal(weights[name], value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.complex64])
def test_weights_of_other_dtypes(dtype, tmp_path):
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype))

        def forward(self, i):
            return self.table[i]

    module, i = Table(), torch.tensor([1, 0])
    for weights in ("apart", "inside"):
        path = torch_tpu.export(module, (i,), weights=weights).save(tmp_path / "t.tpt2")
        got = torch_tpu.load_package(path)(i.to("tpu")).cpu()
        assert torch.equal(got, module(i))


# -- what is refused ---------------------------------------------------------------------------


def test_wrong_calls(tmp_path):
    loaded = torch_tpu.load_package(
        torch_tpu.export(
            State(), (torch.randn(3, 4),), {"extra": [torch.ones(2)], "factor": 2}
        ).save(tmp_path / "state.tpt2")
    )
    x, extra = torch.randn(3, 4, device="tpu"), [torch.ones(2, device="tpu")]
    with pytest.raises(TypeError, match=r"keyword arguments \['extra', 'factor'\], got \[\]"):
        loaded(x)
    with pytest.raises(TypeError, match="exported for arguments of the structure"):
        loaded(x, extra=extra[0], factor=2)
    with pytest.raises(ValueError, match=r"x is float32\[2, 4\] on tpu:0, the program takes float"):
        loaded(x[:2], extra=extra, factor=2)
    with pytest.raises(ValueError, match=r"x is float32\[3, 4\] on cpu"):
        loaded(x.cpu(), extra=extra, factor=2)
    with pytest.raises(ValueError, match="argument 2 of State is 3; exported was 2"):
        loaded(x, extra=extra, factor=3)
    with pytest.raises(TypeError, match="x is a float, a tensor is needed"):
        loaded(1.0, extra=extra, factor=2)


def test_dynamic_shapes_are_refused():
    n = torch.export.Dim("n")
    program = torch.export.export(Noise(), (torch.ones(5),), dynamic_shapes=({0: n},))
    with pytest.raises(ExportError, match="x has a dynamic size .* export once for each shape"):
        torch_tpu.export(program)


def test_what_reads_values_is_refused():
    class Positive(nn.Module):
        def forward(self, x):
            return x[x > 0]

    with pytest.raises(ExportError, match=r"aten.index.Tensor \(index\) cannot be exported: "):
        torch_tpu.export(Positive(), (torch.ones(5),))


def test_weights_without_values_are_refused_when_saved(tmp_path):
    with torch.device("meta"):
        module, x = nn.Linear(4, 2), torch.empty(3, 4)
    exported = torch_tpu.export(module, (x,))
    assert [a.name for a in exported.signature.arguments] == ["weight", "bias", "input"]
    with pytest.raises(ExportError, match="a Tensor on meta and has no values"):
        exported.save(tmp_path / "meta.tpt2")


def test_a_written_buffer_that_shares_memory_is_refused():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            memory = torch.zeros(8)
            self.register_buffer("whole", memory)
            self.register_buffer("part", memory[:4])

        def forward(self, x):
            self.part.add_(x)
            return self.whole + 1

    with pytest.raises(ExportError, match="part is written and shares memory with whole"):
        torch_tpu.export(Shared(), (torch.ones(4),))


def test_wrong_options():
    with pytest.raises(ValueError, match='weights is "apart" or "inside"'):
        torch_tpu.export(mlp(), (torch.ones(1, 8),), weights="outside")
    with pytest.raises(ValueError, match="there is no topology 'v9'"):
        torch_tpu.export(mlp(), (torch.ones(1, 8),), topology="v9")


def test_bad_files(tmp_path):
    path = torch_tpu.export(mlp(), (torch.ones(1, 8),)).save(tmp_path / "mlp.tpt2")
    whole = path.read_bytes()
    bad = tmp_path / "bad.tpt2"
    for data in (b"", b"hello", whole[: len(whole) // 2]):
        bad.write_bytes(data)
        with pytest.raises(PackageError, match="is no package of torch_tpu"):
            torch_tpu.load_package(bad)
    at = whole.index(b'"shape"', whole.index(b"weights.safetensors"))
    bad.write_bytes(whole[:at] + b"?" + whole[at + 1 :])
    with pytest.raises(PackageError, match="is no package of torch_tpu: Bad CRC-32"):
        torch_tpu.load_package(bad)
    with pytest.raises(FileNotFoundError):
        torch_tpu.load_package(tmp_path / "none.tpt2")


def test_a_package_for_a_tpu_is_refused_here(tmp_path):
    exported = torch_tpu.export(mlp(), (torch.ones(1, 8),), topology="v6e:1x1")
    with pytest.raises(ExportError, match="the program is for v6e:1x1, which is not here"):
        exported(torch.ones(1, 8, device="tpu"))
    path = exported.save(tmp_path / "tpu.tpt2", executable=False)
    with pytest.raises(PackageError, match=r"made for the TPU v6e:1x1, this process has .* cpu"):
        torch_tpu.load_package(path)


# -- jax ---------------------------------------------------------------------------------------


def as_jax(exported: Exported):
    """The portable artifact as a function of jax."""
    jax = pytest.importorskip("jax")
    s = exported.signature
    types = [
        tuple(jax.core.ShapedArray(a.shape, a.dtype) for a in group)
        for group in (s.arguments, s.results)
    ]
    flat = jax.tree_util.tree_structure
    return jax.export.Exported(
        fun_name=s.name, in_tree=flat((types[0], {})), in_avals=types[0],
        out_tree=flat(types[1]), out_avals=types[1],
        _has_named_shardings=False, _in_named_shardings=(None,) * len(types[0]),
        _out_named_shardings=(None,) * len(types[1]),
        in_shardings_hlo=(None,) * len(types[0]), out_shardings_hlo=(None,) * len(types[1]),
        nr_devices=1, platforms=("cpu",), ordered_effects=(), unordered_effects=(),
        disabled_safety_checks=(), mlir_module_serialized=exported.bytecode(),
        calling_convention_version=jax.export.maximum_supported_calling_convention_version,
        module_kept_var_idx=tuple(range(len(types[0]))), uses_global_constants=False, _get_vjp=None,
    ).call  # fmt: skip


@pytest.fixture
def jax_on_cpu(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    pytest.importorskip("jax.export")


def test_jax_runs_the_portable_artifact(jax_on_cpu):
    module, x = mlp(), torch.randn(3, 8)
    apart, inside = (torch_tpu.export(module, (x,), weights=w) for w in ("apart", "inside"))
    assert apart.bytecode().startswith(b"ML\xefR")
    weights = apart.weights()
    arguments = [weights.get(a.name, x).numpy() for a in apart.signature.arguments]
    for (y,) in (as_jax(apart)(*arguments), as_jax(inside)(x.numpy())):
        torch.testing.assert_close(torch.from_numpy(np.array(y)), module(x).detach())


def test_the_text_is_parsed_and_verified_by_jaxlib():
    mlir = pytest.importorskip("jax._src.interpreters.mlir")
    ir = pytest.importorskip("jaxlib.mlir.ir")
    kwargs = {"extra": [torch.ones(2)], "factor": 2}
    exported = torch_tpu.export(State(), (torch.randn(3, 4),), kwargs)
    with mlir.make_ir_context():
        assert ir.Module.parse(exported.stablehlo).operation.verify()


def test_without_jaxlib_one_sentence(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "jaxlib.mlir", None)
    with pytest.raises(ImportError, match=r"written by jaxlib: pip install jaxlib$"):
        _exported.portable_artifact("", None)


# -- ahead of time -----------------------------------------------------------------------------


@pytest.mark.tpu_aot
def test_a_package_for_a_tpu_holds_what_libtpu_compiled(tmp_path):
    exported = torch_tpu.export(mlp(), (torch.ones(1, 8),), topology="v5e:1x1")
    path = exported.save(tmp_path / "tpu.tpt2")
    with zipfile.ZipFile(path) as archive:
        signature = json.loads(archive.read("package.json"))
        assert archive.read("executable").startswith(b"torch_tpu executable 1\n")
    assert (signature["platform"], signature["topology"]) == ("tpu", exported.signature.topology)


def test_signatures_are_written_and_read(tmp_path):
    exported = torch_tpu.export(State(), (torch.randn(3, 4),), {"extra": [torch.ones(2)]})
    s = exported.signature
    again = type(s).from_json(s.to_json())
    assert dataclasses.asdict(again) == dataclasses.asdict(s)
    assert s.input_names == ["x", "extra_0"]
    assert s.output_names == ["0.y", "0.more.0", "0.more.1", "0.more.2", "1"]
    assert _C.plugin_path()
