"""torch.compiler.save_cache_artifacts holds the programs of compiled graphs."""

from helpers import run_python

from torch_tpu import _C, _artifacts

STEP = """
import os, torch
from torch_tpu import debug
what, path = os.environ["WHAT"], os.environ["ARTIFACTS"]
if what != "save":
    data = open(path, "rb").read()
    print(len(torch.compiler.load_cache_artifacts(data).tpu_program_artifacts))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to("tpu")
x = torch.randn(3, 4, device="tpu")
one = torch.ones(3, 1, device="tpu")
torch.tpu.synchronize()
debug.reset()
torch.compile(model)(x).backward(one)
counts = debug.counters()
print(counts["compiles"], counts["disk_hits"])
print(model[0].weight.grad.tolist())
if what == "save":
    data, info = torch.compiler.save_cache_artifacts()
    open(path, "wb").write(data)
    print(len(info.tpu_program_artifacts))
"""


def run(what, folder, **env):
    """A process that has an empty cache of its own."""
    out = run_python(
        STEP, WHAT=what, ARTIFACTS=str(folder / "artifacts"), TORCH_TPU_COMPILE_TIER="full",
        TORCH_TPU_CACHE_DIR=str(folder / what), TORCHINDUCTOR_CACHE_DIR=str(folder / f"i{what}"),
        **env,
    )  # fmt: skip
    return out.splitlines()


def test_another_process_compiles_nothing(tmp_path):
    counts, gradient, stored = run("save", tmp_path)
    assert counts == "2 0" and stored == "2"  # forward, backward
    assert run("load", tmp_path) == ["2", "0 2", gradient]


def test_a_damaged_program_is_left_out(caplog):
    name = "0123" * 8
    _artifacts.ProgramArtifact(name, b"what is this").populate_cache()
    assert f"{name} among the artifacts is damaged" in caplog.text
    assert _C.stored_program(name) is None
