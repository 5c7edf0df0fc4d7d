"""Programs compiled by libtpu, which needs no TPU: reports, cycles by precision, errors.

Run by name (pytest -m tpu_aot tests/aot); a plain pytest leaves them out. Results of the compiler
are kept between runs.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_tpu.aot as aot
from torch_tpu.aot import _advice, _chips, _compiler, _report

pytestmark = [
    pytest.mark.tpu_aot,
    pytest.mark.skipif(
        not any(Path(p, "libtpu").is_dir() for p in sys.path)
        and "TPU_LIBRARY_PATH" not in os.environ,
        reason="libtpu is not installed",
    ),
]


@pytest.fixture(autouse=True, scope="module")
def _kept_cache():
    """The user's cache, not the session's: a compile takes from seconds to a minute."""
    before = os.environ.pop("TORCH_TPU_CACHE_DIR", None)
    yield
    if before is not None:
        os.environ["TORCH_TPU_CACHE_DIR"] = before


def meta(*sizes, dtype=torch.bfloat16):
    return torch.empty(sizes, dtype=dtype, device="meta")


class Net(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.second(F.gelu(self.first(x)))


def net(width=256):
    with torch.device("meta"):
        return Net(width).to(torch.bfloat16)


@pytest.fixture(scope="module")
def report():
    return aot.compile(net(), (meta(512, 256),), topology="v6e")


def test_report_has_the_compilers_figures(report):
    assert report.fits and report.topology == "v6e:1x1"
    weights = 2 * (256 * 1024 * 2 + 1024 + 256)
    inputs = 512 * 256 * 2
    assert report.argument_bytes == weights + inputs
    assert (
        report.argument_bytes + report.output_bytes <= report.peak_bytes < 2 * report.argument_bytes
    )
    products = 2 * 512 * 256 * 1024 * 2
    assert report.mxu_passes == {1: products} and products <= report.flops < 1.2 * products
    assert report.estimated_cycles == sum(f.cycles * f.times for f in report.fusions) > 0
    assert report.hbm_traffic_bytes <= report.bytes_accessed
    assert report.hbm_traffic_bytes >= report.argument_bytes + report.output_bytes
    assert abs(report.capacity_bytes / report.chip.hbm_bytes - 1) < 0.05
    assert report.serialized and "HloModule" in report.optimized_hlo


def test_hot_spots_and_buffers_carry_the_users_names(report):
    places = {(h.module, h.op) for h in report.hot_spots}
    assert {("first", "aten::addmm"), ("second", "aten::addmm")} <= places
    assert all("test_compile.py" in h.line for h in report.hot_spots if h.line)
    assert sum(h.share for h in report.hot_spots) == pytest.approx(1)
    assert {b.name for b in report.largest_buffers} >= {"first.weight", "second.weight", "args[0]"}


def test_layers_that_repeat_are_one_row():
    spots = [
        _report.HotSpot(f"model.layers.{i}.mlp", "aten::mm", "m.py:3", 10 + i, 0.1)
        for i in range(3)
    ] + [_report.HotSpot("conv1", "aten::mm", "m.py:9", 25, 0.2)]
    rows = _report.hot_kinds(spots)
    assert [(r.module, r.count, r.cycles) for r in rows] == [
        ("model.layers.*.mlp", 3, 33), ("conv1", 1, 25),
    ]  # fmt: skip
    assert rows[0].share == pytest.approx(0.3)


def test_table_json_and_saved_files(report, tmp_path):
    text = str(report)
    assert "first.weight" in text and "estimated cycles" in text and "TPU v6e" in text
    data = json.loads(report.to_json())
    assert data["fits"] is True and data["chip"]["source"].startswith("https://")
    assert "stablehlo" not in data
    folder = report.save(tmp_path / "out")
    assert {p.name for p in folder.iterdir()} == {
        "report.json", "program.mlir", "optimized.hlo", "program.exe",
    }  # fmt: skip


def test_page_is_self_contained(report, tmp_path):
    pytest.importorskip("matplotlib", reason="draws the page's plots")
    text = report.to_html(tmp_path / "report.html").read_text()
    assert text.count("<svg") == 2 and "first.weight" in text
    assert "<script" not in text and "src=" not in text and "<link" not in text


def test_the_second_time_comes_from_the_cache(report):
    again = aot.compile(net(), (meta(512, 256),), topology="v6e:1x1")
    assert again.from_cache and again.estimated_cycles == report.estimated_cycles


@pytest.mark.parametrize("topology", ["v5e:1x1", "v5p:2x2x1", "v7x"])
def test_other_chips(topology):
    report = aot.compile(net(), (meta(512, 256),), topology=topology)
    assert report.fits and report.estimated_cycles > 0
    assert abs(report.capacity_bytes / report.chip.hbm_bytes - 1) < 0.1


def test_every_known_topology_is_one():
    with _compiler.Child() as child:
        for name in _chips.known():
            devices = int(child.ask("describe", name)["devices"])
            cores = 2 if name.startswith("tpu7x") else 1
            chips = 1
            for n in name.split(":")[1].split("x"):
                chips *= int(n)
            assert devices == chips * cores, name


def test_a_training_step_updates_in_place():
    report = aot.compile(
        lambda m, x: m(x).float().square().mean(), (net(), meta(512, 256)), mode="train",
        optimizer=torch.optim.AdamW,
    )  # fmt: skip
    state = sum(a["size_bytes"] for a in report.arguments if a["updated"])
    assert report.alias_bytes >= state
    assert any(h.module == "optimizer.AdamW" for h in report.hot_spots)
    assert any(h.module == "first" and h.op == "aten::mm" for h in report.hot_spots)


# -- precision -------------------------------------------------------------------------------------


def square(n):
    return torch.empty(n, n, device="meta")


def grad(x):
    return x.clone().requires_grad_()


def cycles(target, args, mode="forward"):
    reports = [
        aot.compile(target, args, mode=mode, precision=p) for p in ("medium", "high", "highest")
    ]
    for r, passes in zip(reports, (1, 3, 6), strict=True):
        assert set(r.mxu_passes) == {passes}
    return [r.estimated_cycles for r in reports]


IMAGE = torch.empty(16, 256, 32, 32, device="meta")
HEADS = torch.empty(4, 8, 1024, 128, device="meta")
CASES = {
    "conv": (nn.Conv2d(256, 256, 3, device="meta"), (IMAGE,), "forward"),
    "conv backward": (
        lambda m, x: m(x).square().sum(), (nn.Conv2d(256, 256, 3, device="meta"), grad(IMAGE)),
        "train",
    ),
}  # fmt: skip
# Bound by what is not a matrix product at the sizes that compile quickly: rising is what is asked.
RISING = {
    "linear": (nn.Linear(1024, 1024, device="meta"), (square(1024),), "forward"),
    "einsum": (lambda a, b: torch.einsum("ij,jk->ik", a, b), (square(1024),) * 2, "forward"),
    "sdpa": (F.scaled_dot_product_attention, (HEADS,) * 3, "forward"),
    "sdpa backward": (
        lambda q: F.scaled_dot_product_attention(q, q, q).square().sum(), (grad(HEADS),), "train",
    ),
    "linear backward": (
        lambda m, x: m(x).square().sum(),
        (nn.Linear(1024, 1024, device="meta"), grad(square(1024))), "train",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_passes_of_a_large_product():
    one, three, six = cycles(torch.mm, (square(4096), square(4096)))
    assert three >= 2.5 * one and six >= 5 * one


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_passes_of_convolutions(name):
    one, three, six = cycles(*CASES[name])
    assert three >= 1.9 * one and six >= 3.5 * one


@pytest.mark.parametrize("name", RISING)
def test_more_passes_cost_more(name):
    one, three, six = cycles(*RISING[name])
    assert one < six
    # libtpu makes softmax and second product of an attention one custom call, of which it tells no
    # cycles, and calls three passes of the first dearer than six: of JAX's program, too.
    if not name.startswith("sdpa"):
        assert one < three < six


def test_the_report_says_what_less_precision_would_gain():
    report = aot.compile(torch.mm, (square(1024),) * 2)
    assert any("float32 in 6 passes" in w and "'high'" in w for w in report.warnings)


# -- advice ----------------------------------------------------------------------------------------


def test_advice():
    report = aot.compile(lambda x: (x.double() * 2).float(), (torch.empty(64, 128, device="meta"),))
    assert any("float64" in w for w in report.warnings)
    report = aot.compile(
        lambda x, y: x.view(4096, 300, 3) + y, (meta(4096 * 900), meta(4096, 300, 3))
    )
    assert any(w.startswith("padding") for w in report.warnings)
    report = aot.compile(torch.mm, (meta(4096, 40), meta(40, 4096)))
    assert any("contracted size 40" in w for w in report.warnings)


# -- errors ----------------------------------------------------------------------------------------


def test_a_program_that_is_too_big_does_not_fit():
    def run(x):
        return x @ x.t()

    report = aot.compile(run, (meta(1 << 18, 1 << 17),), topology="v6e:1x1")
    assert not report.fits and report.peak_bytes > report.capacity_bytes
    assert report.roofline is None and report.failure
    assert any("does not fit" in w for w in report.warnings)
    assert "NO" in str(report)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("Ran out of memory in memory space hbm. Used 64.01G of 31.25G hbm.", 64.01),
        ("memory required for HLO temporaries (16.02G) exceeds available HBM (15.75G).", 16.02),
        ("the program requires 20.5G", 20.5),
        ("no memory", 0),
    ],
)
def test_what_is_needed_is_read_from_the_compilers_text(text, size):
    assert _advice.needed_bytes(text) == int(size * 2**30)


@pytest.mark.parametrize("name", ["v9:1x1", "v6e:7", "v6e:2x2x2x2", "v5p:1x1x1x1", "", "v5p:1"])
def test_unknown_topologies_name_those_there_are(name):
    with pytest.raises(ValueError, match="v6e:2x2, .*tpu7x:1x1x1"):
        aot.compile(torch.mm, (square(8),) * 2, topology=name)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("v7x:2x2x1", "tpu7x:2x2x1"),
        ("v5litepod-4", "v5e:2x2"),
        ("v6e", "v6e:1x1"),
        ("V6E:8", "v6e:2x4"),
    ],
)
def test_spellings(name, want):
    assert _chips.normalize(name)[0] == want


def test_libtpu_is_not_there(monkeypatch):
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/no/such/libtpu.so")
    with pytest.raises(aot.CompilerError, match="is no file"):
        aot.compile(torch.mm, (square(9),) * 2)
    monkeypatch.delenv("TPU_LIBRARY_PATH")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(aot.CompilerError, match="pip install"):
        aot.compile(torch.mm, (square(9),) * 2)


def test_a_library_that_is_no_libtpu(monkeypatch, tmp_path):
    wrong = tmp_path / "libtpu.so"
    wrong.write_text("no library")
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(wrong))
    with pytest.raises(aot.CompilerError, match=str(wrong)):
        aot.compile(torch.mm, (square(9),) * 2)


OTHER_PLUGIN = """
#include <stddef.h>
struct Version {{ size_t size; void* extension; int major, minor; }};
struct Api {{ size_t size; void* extension; struct Version version; void* functions[200]; }};
static struct Api api = {{sizeof(struct Api), 0, {{sizeof(struct Version), 0, {major}, {minor}}}}};
const void* GetPjrtApi(void) {{ return &api; }}
"""


@pytest.mark.parametrize(("major", "minor"), [(0, 40), (1, 2)])
def test_a_libtpu_of_a_wrong_version(monkeypatch, tmp_path, major, minor):
    source, library = tmp_path / "old.c", tmp_path / "old.so"
    source.write_text(OTHER_PLUGIN.format(major=major, minor=minor))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(library))
    with pytest.raises(aot.CompilerError, match=rf"PJRT {major}\.{minor}; .*pip install 'libtpu"):
        aot.compile(torch.mm, (square(9),) * 2)


def test_a_plugin_for_something_else(monkeypatch):
    spec = importlib.util.find_spec("lammps_jax_pjrt_cpu")
    library = Path(spec.submodule_search_locations[0]) / "pjrt_c_api_cpu_plugin.so"
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(library))
    with pytest.raises(aot.CompilerError, match=r"does not compile for v6e:1x1: .*pip install"):
        aot.compile(torch.mm, (square(9),) * 2)


def test_what_cannot_be_traced_names_op_and_line():
    with pytest.raises(NotImplementedError, match=r"intlist.*no TPU lowering"):
        aot.compile(lambda x: torch.ops.aten._test_optional_intlist(x, None), (square(3),))
    with pytest.raises(RuntimeError, match=r"is being traced.*test_compile\.py:\d+"):
        aot.compile(lambda x: x.sum().item(), (square(3),))


ABORTS = """
module {
  func.func public @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %0 = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%a)
      : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}
"""


def test_an_abort_of_the_compiler_is_an_error():
    with pytest.raises(aot.CompilerError, match=r"process ended by SIG"):
        _compiler.compile_text(ABORTS, "v6e:1x1")
    assert _compiler.describe("v6e:1x1")["devices"] == "1"


def test_a_program_that_is_refused():
    with pytest.raises(aot.CompilerError):
        _compiler.compile_text("this is no program", "v6e:1x1")


# -- command line ----------------------------------------------------------------------------------


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "torch_tpu.aot", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
    )


PROGRAM = """
import torch
from torch import nn
def small():
    with torch.device("meta"):
        return nn.Linear(256, 256).to(torch.bfloat16), (torch.empty(64, 256, dtype=torch.bfloat16),)
def step():
    module, args = small()
    return {"module_or_fn": lambda m, x: m(x).float().sum(), "args": (module, *args)}
def elsewhere():
    module, args = small()
    return {"module_or_fn": module, "args": args, "topology": "v5e"}
def wrong():
    return 3
"""


def test_command(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = command(f"{file}:small", "-t", "v6e", "-t", "v5e", "--json", str(tmp_path / "r.json"))
    assert done.returncode == 0, done.stderr
    assert "weight" in done.stdout and "v5e:1x1" in done.stdout.splitlines()[-1]
    assert json.loads((tmp_path / "r-v6e.json").read_text())["fits"]
    done = command(f"{file}:step", "--mode", "train", "--optimizer", "SGD")
    assert done.returncode == 0 and "training step" in done.stdout


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("wrong", "it has to give"),
        ("missing", "has no function missing"),
    ],
)
def test_command_errors(tmp_path, program, text):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = command(f"{file}:{program}")
    assert done.returncode == 1 and text in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--json", "/nowhere/r.json"], "cannot be written"),
        (["--html", "/"], "cannot be written"),
        (["--save", "/proc/r"], "cannot be written"),
        (["--optimizer", "Adamw"], "no optimizer 'Adamw'"),
        (["--optimizer", "lr_scheduler"], "no optimizer"),
    ],
)
def test_command_says_first_what_cannot_be_done(tmp_path, options, text):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = command(f"{file}:small", *options)
    assert done.returncode == 1 and text in done.stderr and "Traceback" not in done.stderr


def test_command_takes_the_topology_of_the_function(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = command(f"{file}:elsewhere")
    assert done.returncode == 0 and "v5e:1x1" in done.stdout


def test_a_cache_that_cannot_be_written_costs_no_result(monkeypatch, caplog):
    monkeypatch.setenv("TORCH_TPU_CACHE_DIR", "/proc/nowhere")
    report = aot.compile(net(), (meta(64, 256),))
    assert report.fits and "the result is not kept" in caplog.text


def test_a_topology_is_a_name():
    with pytest.raises(ValueError, match="is a name such as"):
        aot.compile(net(), (meta(64, 256),), topology=5)


def test_command_lists_topologies():
    assert command("--list").stdout.split() == aot.topologies()
