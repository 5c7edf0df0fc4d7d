"""The checkers of the repository find what they look for."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_layers_of_the_sources():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "check_layers.py"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "no fault" in done.stdout


@pytest.mark.parametrize(
    "layer, include, fault",
    [
        ("hlo", '"ops/attr.h"', "hlo must not include ops"),
        ("trace", '"pjrt/api.h"', "trace must not include pjrt"),
        ("aten", "<ATen/ATen.h>", "must not see torch"),
        ("runtime", "<pjrt_c_api.h>", "only pjrt sees"),
        ("bridge", "<torch/extension.h>", "30 s"),
        ("bridge", '"aten/reduce.h"', "bridge must not include aten"),
        ("base", '"error.h"', "<layer>/<file>.h"),
        ("base", '"base/none.h"', "no such file"),
        ("utils", "<vector>", "utils is no layer"),
        ("bridge", '"aten/all.h"', None),
        ("ops", '"hlo/type.h"', None),
        ("python", "<torch/library.h>", None),
    ],
)
def test_faults_of_layers_are_found(tmp_path, layer, include, fault):
    for header in ("ops/attr.h", "pjrt/api.h", "aten/reduce.h", "aten/all.h", "hlo/type.h"):
        (tmp_path / header).parent.mkdir(exist_ok=True)
        (tmp_path / header).touch()
    source = tmp_path / layer / "file.cpp"
    source.parent.mkdir(exist_ok=True)
    source.write_text(f"#include <vector>\n#include {include}\n")
    found = load("check_layers").faults(source, tmp_path)
    if fault is None:
        assert found == []
    else:
        assert len(found) == 1 and fault in found[0]
        assert layer == "utils" or found[0].startswith(f"{source}:2: ")


def test_quick_check_compiles_changed_operators_only(monkeypatch, tmp_path):
    tool = load("tpu_check")
    programs = {"add": "add 1", "mul": "mul 1"}
    compiled = []

    def compile_text(checker, text, topology):
        compiled.append(text)
        return "no such op" if "refused" in text else "ok"

    def traced(*_):
        for name, text in programs.items():
            yield name, lambda n=name, t=text: [tool.Module(t, {f"aten::{n}"}, True)]

    monkeypatch.setattr(tool.Checker, "_compile", compile_text)
    monkeypatch.setattr(tool, "traced", traced)

    def run(*options, compiler="one"):
        compiled.clear()
        monkeypatch.setattr(tool._compiler, "describe", lambda _: {"platform_version": compiler})
        files = ["--summary", str(tmp_path / "summary.json"), "--results", str(tmp_path / "r.json")]
        monkeypatch.setattr(sys, "argv", ["tpu_check.py", *files, *options])
        code = tool.main()
        (tmp_path / "r.json").unlink()  # as in a fresh clone
        return code

    assert run() == 0 and compiled == ["add 1", "mul 1"]
    assert run("--changed") == 0 and compiled == []
    programs["mul"] = "mul 2"
    assert run("--changed") == 0 and compiled == ["mul 2"]
    programs["mul"] = "mul refused"
    assert run("--changed") == 1 and compiled == ["mul refused"]
    # Another compiler: some of all.
    assert run("--changed", compiler="two") == 0 and compiled == ["add 1"]
    assert run("--changed", "--minutes", "-1") == 0 and compiled == []
