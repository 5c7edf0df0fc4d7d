"""torch.tpu.explain tells each line's part; TORCH_TPU_LOG=compile names what is compiled."""

import inspect
import warnings

import pytest
import torch
from helpers import run_python

import torch_tpu
from torch_tpu.mode import EagerMode, set_eager_mode

LIBRARY = torch.library.Library("tpu_test_explain", "DEF")
LIBRARY.define("cpu_only(Tensor x) -> Tensor")
LIBRARY.impl("cpu_only", lambda x: x.clone(), "CPU")


def line() -> int:
    return inspect.currentframe().f_back.f_lineno


def row_of(explanation, number):
    rows = [r for r in explanation.rows if f"test_explain.py:{number} in " in r.where]
    assert len(rows) == 1, (number, explanation.rows)
    return rows[0]


@pytest.fixture(autouse=True)
def fused():
    torch.tpu.synchronize()
    with set_eager_mode(EagerMode.DEFER_AND_FUSE):
        yield


def test_windows_copies_and_waits_are_those_of_their_lines():
    x = torch.ones(100)
    with torch.tpu.explain() as e:
        y = x.to("tpu"); upload = line()  # fmt: skip  # noqa: E702
        y = (y + 1) * 2
        y.sum().item(); read = line()  # fmt: skip  # noqa: E702
    assert row_of(e, upload).bytes_h2d == 400
    row = row_of(e, read)
    assert row.windows == 1 and row.reasons == {"read": 1} and row.ops == 3
    assert row.launches >= 1 and row.bytes_d2h == 4 and row.waits == 1
    text = str(e)
    assert f"test_explain.py:{read}" in text and "1 read" in text and "400 B" in text
    assert e.to_html().count("<tr>") == len(e.rows) + 1
    assert e.to_json()[0]["where"] == e.rows[0].where


def test_a_second_compile_says_what_differed():
    torch.tpu.cache.clear()
    with torch.tpu.explain() as e:
        for n in (31, 32, 33):
            x = torch.ones(n, 3).to("tpu")
            torch.special.i1(x).cpu()
    compiled = [r for r in e.rows if r.compiles]
    assert sum(r.compiles for r in compiled) == 3
    assert "compiled again" in str(e) and "float32[32, 3]" in str(e) and "float32[31, 3]" in str(e)


def test_ops_on_the_cpu_are_named():
    before = torch_tpu.get_fallback()
    torch_tpu.set_fallback("warn")
    try:
        with torch.tpu.explain() as e, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.ops.tpu_test_explain.cpu_only(torch.ones(2, device="tpu"))
    finally:
        torch_tpu.set_fallback(before)
    assert any(r.fallbacks == {"tpu_test_explain::cpu_only": 1} for r in e.rows)


def test_nothing_is_kept_outside():
    with torch.tpu.explain() as e:
        pass
    (torch.ones(3).to("tpu") + 1).cpu()
    assert e.rows == []
    with torch.tpu.explain() as outer, torch.tpu.explain() as inner:
        (torch.ones(3).to("tpu") + 1).cpu()
    assert inner.rows and not outer.rows


def test_compiles_are_logged():
    code = """
        import torch
        x = torch.ones(3).to("tpu")
        (x * 2).cpu()
        raise SystemExit(1)
    """
    lines = run_python(code, ok=False, TORCH_TPU_LOG="compile", TORCH_TPU_DISK_CACHE="0")
    assert lines.count("torch_tpu: compiled in") == 1
    assert "from <string>:4 in <module>: aten::mul" in lines
