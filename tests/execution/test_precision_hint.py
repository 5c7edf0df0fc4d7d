"""What less precision would gain on a TPU is said once, where it matters."""

import pytest
from helpers import run_python

CODE = """
import warnings
import torch

seen = []
warnings.simplefilter("always")
warnings.showwarning = lambda text, kind, *where: seen.append((str(text), where))
a = torch.ones(512, 512, device="tpu")
{before}
for _ in range(2):
    a @ a
    torch.nn.functional.linear(a, a)
torch.tpu.synchronize()
for text, where in seen:
    print(where[1], text)
"""


def said(before="", **env):
    return run_python(CODE.format(before=before), TORCH_TPU_DISK_CACHE="0", **env).splitlines()


def test_once_for_a_tpu_at_the_line_of_a_large_product():
    (text,) = said("a[:8] @ a", TORCH_TPU_LOWER_FOR="tpu")  # the small one is worth no word
    assert text.startswith("11 aten::mm(float32[512, 512]")
    assert "'high'" in text and "'medium'" in text and "six passes" in text


def test_never_on_the_cpu_plugin():
    assert said() == []


@pytest.mark.parametrize(
    "before",
    [
        "torch.set_float32_matmul_precision('high')",
        "torch.tpu.precision('highest').__enter__()",  # asked for
        "a = a.bfloat16()",
    ],
    ids=["high", "asked for", "bfloat16"],
)
def test_not_where_nothing_is_to_be_gained(before):
    assert said(before, TORCH_TPU_LOWER_FOR="tpu") == []


def test_not_while_a_program_is_traced():
    before = """
from torch_tpu.aot import _trace
_trace.trace(torch.mm, (torch.empty(512, 512, device="meta"),) * 2)
a = a.bfloat16()
"""
    assert said(before, TORCH_TPU_LOWER_FOR="tpu") == []
