"""torch_tpu_run: a package served without Python, and what it says of bad input."""

import json
import os
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

import torch_tpu
from torch_tpu import _C, run


def serve(*arguments, plugin=None, **env):
    """The ended process."""
    full = {**os.environ, "TORCH_TPU_PJRT_PLUGIN": plugin or _C.plugin_path(), **env}
    return subprocess.run(
        [run.program(), *map(str, arguments)], capture_output=True, text=True, env=full, timeout=120
    )


def answer(*arguments, **env):
    """What it prints; it must end with 0 and say nothing on stderr."""
    done = serve(*arguments, **env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def complaint(*arguments, **env):
    """The one line of an error."""
    done = serve(*arguments, **env)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, (done.returncode, done.stderr)
    return done.stderr.removeprefix("torch_tpu_run: ").strip()


class Model(nn.Module):
    """Two inputs of other types, two results, a buffer that is written."""

    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(10, 4), nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens, *, scale):
        self.calls.add_(1)
        y = self.last(self.table(tokens)) * scale
        return {"scores": y, "best": y.argmax(-1)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A package, its input file, the module and its inputs."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("runner")
    module = Model().eval()
    tokens, scale = torch.tensor([[1, 2, 9], [0, 3, 4]]), torch.rand(2, 3, 1)
    path = torch_tpu.export(module, (tokens,), {"scale": scale}).save(folder / "model.tpt2")
    np.savez(folder / "in.npz", tokens=tokens.numpy(), scale=scale.numpy())
    return path, folder / "in.npz", module, (tokens, scale)


def test_it_gives_what_the_module_gives(model, tmp_path):
    path, inputs, module, (tokens, scale) = model
    said = answer(path, inputs, tmp_path / "out.npz")
    assert "scores float32[2, 3, 3]\n" in said and "loaded in " in said
    with torch.no_grad():
        want = module(tokens, scale=scale)
    got = np.load(tmp_path / "out.npz")
    assert sorted(got) == ["best", "scores", "updated.calls"]
    torch.testing.assert_close(torch.from_numpy(got["scores"]), want["scores"])
    assert got["best"].tolist() == want["best"].tolist() and got["updated.calls"] == 1


def test_python_dash_m_finds_program_and_plugin(model, tmp_path):
    path, inputs, *_ = model
    env = {k: v for k, v in os.environ.items() if k != "TORCH_TPU_PJRT_PLUGIN"}
    command = [sys.executable, "-m", "torch_tpu.run", path, inputs, tmp_path / "out.npz"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out.npz").is_file()


def test_what_the_package_keeps_is_written_by_each_run(model, tmp_path):
    path, inputs, *_ = model
    assert "median of 3" in answer("--repeat", 3, path, inputs, tmp_path / "out.npz")
    assert np.load(tmp_path / "out.npz")["updated.calls"] == 3


def test_info_needs_no_plugin(model):
    said = answer("--info", model[0], plugin="/nowhere.so")
    assert said.splitlines()[0] == "Model, for cpu, with an executable"
    assert "input   tokens int64[2, 3]\n" in said and "output  best int64[2, 3]\n" in said


def test_neither_torch_nor_python_is_linked():
    linked = subprocess.run(["ldd", run.program()], capture_output=True, text=True).stdout
    assert "libstdc++" in linked and "torch" not in linked and "python" not in linked


def test_fortran_order_and_another_zip_writer(model, tmp_path):
    path, _, module, (tokens, scale) = model
    np.savez(tmp_path / "in.npz", tokens=np.asfortranarray(tokens), scale=scale.numpy())
    answer(path, tmp_path / "in.npz", tmp_path / "out.npz")
    want = module(tokens, scale=scale)["best"].tolist()
    assert np.load(tmp_path / "out.npz")["best"].tolist() == want


def test_random_numbers_follow_the_seed(tmp_path):
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    path = torch_tpu.export(Noise(), (torch.zeros(5),)).save(tmp_path / "noise.tpt2")
    np.savez(tmp_path / "in.npz", x=np.zeros(5, np.float32))
    answer("--seed", 7, path, tmp_path / "in.npz", tmp_path / "out.npz")
    torch.manual_seed(7)
    want = torch.rand(5, device="tpu").tolist()
    assert np.load(tmp_path / "out.npz")["output"].tolist() == want


def test_bfloat16_is_two_bytes_for_numpy(tmp_path):
    class Double(nn.Module):
        def forward(self, x):
            return x * 2

    x = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    path = torch_tpu.export(Double(), (x,)).save(tmp_path / "double.tpt2")
    np.savez(tmp_path / "in.npz", x=x.view(torch.uint16).numpy().view("V2"))
    answer(path, tmp_path / "in.npz", tmp_path / "out.npz")
    got = torch.from_numpy(np.load(tmp_path / "out.npz")["output"].view(np.uint16))
    assert torch.equal(got.view(torch.bfloat16), x * 2)


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"scale": None}, "has no array scale; the package takes tokens int64[2, 3], scale float"),
        ({"more": np.zeros(1)}, "has an array more, which is no input; the package takes tokens"),
        ({"tokens": np.zeros((2, 3), np.int32)}, "is <i4[2, 3], the package takes int64[2, 3] (N"),
        ({"tokens": np.zeros((3, 2), np.int64)}, "is <i8[3, 2], the package takes int64[2, 3]"),
    ],
)
def test_wrong_inputs(model, tmp_path, change, text):
    path, inputs, *_ = model
    arrays = {k: v for k, v in {**np.load(inputs), **change}.items() if v is not None}
    np.savez(tmp_path / "in.npz", **arrays)
    assert text in complaint(path, tmp_path / "in.npz")


def test_an_index_out_of_range_is_told(model, tmp_path):
    path, inputs, *_ = model
    np.savez(tmp_path / "in.npz", **{**np.load(inputs), "tokens": np.full((2, 3), 10)})
    assert "10 is not in [0, 10)" in complaint(path, tmp_path / "in.npz", tmp_path / "o.npz")
    assert not (tmp_path / "o.npz").exists()


def test_compressed_inputs(model, tmp_path):
    np.savez_compressed(tmp_path / "in.npz", **np.load(model[1]))
    said = complaint(model[0], tmp_path / "in.npz")
    assert "is compressed; write it uncompressed (numpy.savez, not savez_compressed)" in said


def test_files_that_are_none(model, tmp_path):
    path, inputs, *_ = model
    bad = tmp_path / "bad"
    assert "cannot be read: No such file" in complaint(bad, inputs)
    assert "is no file" in complaint(tmp_path, inputs)
    assert "is no package of torch_tpu" in complaint(inputs, inputs)
    whole = path.read_bytes()
    for data in (b"", b"hello", whole[: len(whole) // 2], whole[:-1]):
        bad.write_bytes(data)
        assert "is no zip archive, or is cut short" in complaint(bad, inputs)
        assert "is no zip archive, or is cut short" in complaint(path, bad)


def test_damaged_members(model, tmp_path):
    path, inputs, *_ = model
    whole, bad = path.read_bytes(), tmp_path / "bad"
    for word in (b'"format"', b"data_offsets"):
        at = whole.index(word)
        bad.write_bytes(whole[:at] + b"?" + whole[at + 1 :])
        assert "is damaged: its checksum is wrong" in complaint(bad, inputs)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s.update(format=9), "has format 9, this program reads up to 1"),
        (lambda s: s.update(platform="tpu", topology="v6e:1x1"), "was made for the TPU v6e:1x1, t"),
        (lambda s: s.pop("results"), 'the JSON has no member "results"'),
        (
            lambda s: s["results"][0].update(shape=[18]),
            "the program gives other results than package.json says",
        ),
        (lambda s: s["arguments"][0].update(updated_by=2), "cannot be updated by result 2"),
        (lambda s: s["arguments"][0].update(updated_by=99), "cannot be updated by result 99"),
        (lambda s: s["arguments"][0].update(shape=[7]), "the program takes float32[7]"),
        (lambda s: s["arguments"][0].update(name="none"), "weights.safetensors has no tensor none"),
        (lambda s: s["arguments"][0].update(dtype="quint8"), "quint8 is no element type"),
    ],
)
def test_packages_that_contradict_themselves(model, tmp_path, change, text):
    path, inputs, *_ = model
    bad = tmp_path / "bad.tpt2"
    with zipfile.ZipFile(path) as a, zipfile.ZipFile(bad, "w") as b:
        for name in a.namelist():
            data = a.read(name)
            if name == "package.json":
                signature = json.loads(data)
                change(signature)
                data = json.dumps(signature)
            b.writestr(name, data)
    assert text in complaint(bad, inputs)


def test_an_executable_of_another_build_is_compiled_anew(model, tmp_path):
    path, inputs, module, (tokens, scale) = model
    other = tmp_path / "other.tpt2"
    with zipfile.ZipFile(path) as a, zipfile.ZipFile(other, "w") as b:
        for name in a.namelist():
            data = a.read(name)
            if name == "executable":
                at = data.index(b"\n") + 1
                data = data[:at] + b"0" * 32 + data[at + 32 :]
            b.writestr(name, data)
    done = serve(other, inputs, tmp_path / "out.npz")
    assert done.returncode == 0
    assert "compiled: the executable was made by another plugin build" in done.stderr
    want = module(tokens, scale=scale)["best"].tolist()
    assert np.load(tmp_path / "out.npz")["best"].tolist() == want


def test_plugins(model, tmp_path):
    path, inputs, *_ = model
    assert "/nowhere.so" in complaint(path, inputs, plugin="/nowhere.so")
    assert _C.__file__ in complaint("--plugin", _C.__file__, path, inputs)
    said = complaint(path, inputs, TORCH_TPU_PJRT_PLUGIN="")
    assert "no PJRT plugin is named; give --plugin FILE or set TORCH_TPU_PJRT_PLUGIN" in said


@pytest.mark.parametrize("words", [(), ("a",), ("--what", "a", "b"), ("--repeat", "0", "a", "b")])
def test_wrong_command_lines(words):
    done = serve(*words)
    assert done.returncode == 2 and done.stderr.startswith("usage: torch_tpu_run ")


def test_zip64_numbers_are_read(model, tmp_path):
    """As NumPy writes large arrays: sizes stand in the extra field."""
    path, inputs, *_ = model
    with zipfile.ZipFile(tmp_path / "in.npz", "w") as archive:
        for name, array in np.load(inputs).items():
            with archive.open(name + ".npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array)
    assert struct.unpack("<H", (tmp_path / "in.npz").read_bytes()[4:6])[0] == 45
    answer(path, tmp_path / "in.npz")
