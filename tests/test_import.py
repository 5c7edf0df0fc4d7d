"""What `import torch` does once the package is installed."""

import io
import re
import tomllib
import zipfile
from pathlib import Path

import pytest
from helpers import run_python

import torch_tpu
from torch_tpu import _version

ROOT = Path(__file__).parent.parent


def test_import_torch_is_enough():
    out = run_python("""
        import torch
        print(torch.device("tpu"), torch.ones(2, device="tpu").add(1).tolist())
    """)
    assert out == "tpu [2.0, 2.0]\n"


def test_autoload_can_be_switched_off():
    out = run_python(
        """
        import sys, torch
        assert "torch_tpu" not in sys.modules and not hasattr(torch, "tpu")
        try:
            torch.device("tpu")
            print("a device")
        except RuntimeError:
            print("none")
        import torch_tpu
        print(torch.ones(2, device="tpu").sum().item())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert out == "none\n2.0\n"


@pytest.mark.parametrize("autoload", ["0", "1"])
@pytest.mark.parametrize(
    "first", ["torch_tpu", "torch_tpu.debug", "torch_tpu.device", "torch_tpu._C", "torch"]
)
def test_order_of_imports(first, autoload):
    out = run_python(
        f"""
        import {first}
        import torch_tpu, torch
        assert torch.tpu.device_count() >= 1
        print(torch_tpu.__version__, torch_tpu.debug.compile_count())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD=autoload,
    )
    assert out == f"{_version.__version__} 0\n"


def test_silent_up_to_the_result():
    # run_python also demands an empty stderr.
    assert run_python("import torch; torch.ones(3, device='tpu').sum().item()") == ""


def test_starts_nothing():
    out = run_python("""
        import torch
        torch.manual_seed(3)
        state = torch.tpu.get_rng_state()
        names = [torch.tpu.is_available(), torch.tpu.device_count() >= 1, len(state) == 16]
        names += [torch.accelerator.is_available(), torch.accelerator.device_count() >= 1]
        names += [torch.accelerator.current_accelerator().type == "tpu"]
        torch.nn.Linear(2, 2), torch.ones(2).pin_memory
        print(all(names), torch.tpu.is_initialized())
        torch.tpu.init()
        print(torch.tpu.is_initialized())
    """)
    assert out == "True False\nTrue\n"


def test_imports_nothing_heavy_and_is_cheap():
    out = run_python(
        """
        import sys, time, torch
        before = set(sys.modules)
        start = time.process_time()
        import torch_tpu
        cost = time.process_time() - start
        new = {name for name in set(sys.modules) - before if not name.startswith("torch_tpu")}
        print(sorted(new - {name for name in new if name.startswith("torch.tpu")}))
        print(cost < 0.5 or cost)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    modules, cheap = out.splitlines()
    assert set(eval(modules)) <= {"pkgutil", "torch.utils._import_utils"}, modules
    assert cheap == "True"


def test_another_torch_is_refused_in_one_sentence():
    message = ".*needs torch 2.13, found 2.99.1\\+cpu; run `pip install 'torch==2.13.\\*'`.*"
    with pytest.raises(ImportError, match=message) as error:
        _version.check_torch("2.99.1+cpu")
    assert "\n" not in str(error.value)
    _version.check_torch("2.13.1+cpu")
    stderr = run_python(
        """
        import torch
        torch.__version__ = "2.12.0"
        import torch_tpu
        """,
        ok=False,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert "ImportError: torch_tpu" in stderr and "found 2.12.0" in stderr


def test_one_torch_version_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pins = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    found = [re.match(r"torch==(\d+\.\d+)\.[\d*]+$", pin) for pin in pins]
    assert [m[1] for m in found if m] == [_version.TORCH_VERSIONS[-1]] * 2


def test_the_package_is_small():
    folder = Path(torch_tpu.__file__).parent
    files = [f for f in folder.rglob("*") if f.is_file() and "__pycache__" not in f.parts]
    assert any(re.fullmatch(r"_C\..*so", f.name) for f in files)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in files:
            wheel.write(file, file.relative_to(folder))
    assert len(packed.getvalue()) < 15 * 2**20
