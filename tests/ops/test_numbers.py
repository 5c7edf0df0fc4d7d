"""Numbers that a dtype cannot hold: an error where the CPU has one, the same value elsewhere."""

import warnings

import pytest
import torch

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
]  # fmt: skip
NUMBERS = [
    -1, -255, -256, 255, 256, 2**31, 2**40, -1.0, -256.0, 255.9, 300.5,
    1e39, float("inf"), float("-inf"), float("nan"), 2j, True,
]  # fmt: skip
MASK = torch.tensor([True, False])
FIRST = torch.tensor([0])

OPS = {
    "fill_": lambda x, n: x.fill_(n),
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype, device=x.device),
    "clamp": lambda x, n: x.clamp(max=n),
    "clamp_min": lambda x, n: x.clamp_min(n),
    "masked_fill": lambda x, n: x.masked_fill(MASK.to(x.device), n),
    "scatter": lambda x, n: x.scatter(0, FIRST.to(x.device), n),
    "index_fill": lambda x, n: x.index_fill(0, FIRST.to(x.device), n),
    "pad": lambda x, n: torch.nn.functional.pad(x, (1, 1), value=n),
    "addcmul": lambda x, n: x.addcmul(x, x, value=n),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "threshold": lambda x, n: torch.nn.functional.threshold(x, n, 1),
    "mul": lambda x, n: x * n,
    "rsub": lambda x, n: n - x,
    "isin": lambda x, n: torch.isin(x, n),
    "searchsorted": lambda x, n: torch.searchsorted(x, n),
    "nan_to_num": lambda x, n: torch.nan_to_num(x, n),
}
# A complex number with a float16 gives complex32, which the device has not; a complex bound is
# refused in other words; inf in complex sums.
UNLIKE = {
    *((op, torch.float16, 2j) for op in ("mul", "rsub", "alpha", "addcmul")),
    *(("clamp", dtype, 2j) for dtype in DTYPES),
    *(("rsub", torch.complex64, n) for n in (1e39, float("inf"), float("-inf"))),
}


def outcome(op, dtype, number, device):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return OPS[op](torch.ones(2, device=device).to(dtype), number).cpu()
        except (RuntimeError, TypeError) as e:
            return "overflow" if "without overflow" in str(e) else "error"


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
def test_number_out_of_range(op, dtype):
    for number in NUMBERS:
        if (op, dtype, number) in UNLIKE:
            continue
        want, got = (outcome(op, dtype, number, d) for d in ("cpu", "tpu"))
        if isinstance(want, str):
            assert got == want, (number, want, got)
        else:
            assert not isinstance(got, str), (number, want, got)
            torch.testing.assert_close(got, want, equal_nan=True)


def test_refused_number_changes_nothing():
    x = torch.arange(3, dtype=torch.int8, device="tpu")
    with pytest.raises(RuntimeError, match=r"aten::fill_.*without overflow"):
        x.fill_(300)
    assert x.tolist() == [0, 1, 2]
    x.fill_(100)
    assert x.tolist() == [100] * 3
