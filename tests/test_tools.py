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
