"""Types of results: every pair of types, as tensor, 0-d tensor and number, as on the CPU.

Types are known when an op is recorded, so the whole table costs no launch; values are then compared
one program per left type.
"""

import itertools
import warnings

import pytest
import torch

from torch_tpu.mode import EagerMode, set_eager_mode

DTYPES = [
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128,
]  # fmt: skip
FLOAT8 = [
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]  # fmt: skip
NUMBERS = {bool: True, int: 3, float: 2.5, complex: 1.5 + 0.5j}
SHAPES = {"tensor": (3,), "zero_d": ()}

# Result type is the common one; or what the op makes of it.
OPS = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "eq": torch.eq,
    "lt": torch.lt,
    "logical_and": torch.logical_and,
    "bitwise_or": torch.bitwise_or,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "where": lambda a, b: torch.where(torch.tensor(True, device=device_of(a, b)), a, b),
}


def device_of(*args):
    return next(a.device for a in args if isinstance(a, torch.Tensor))


def values(dtype, shape, device="cpu"):
    x = torch.tensor([1, 2, 3] if dtype != torch.bool else [True, False, True]).to(dtype)
    return (x if shape else x[0]).to(device)


def outcome(f, *args):
    """The result, or the class of the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return f(*args)
        except (RuntimeError, TypeError, NotImplementedError) as e:
            return e


def settled(result):
    """The result once its values are known: checks of data are told at the next wait."""
    if isinstance(result, torch.Tensor):
        e = outcome(result.cpu)
        return e if isinstance(e, Exception) else result
    return result


def lacks_kernel(e):
    return isinstance(e, NotImplementedError) or "not implemented for" in str(e)


OPERANDS = [(kind, d) for kind in SHAPES for d in DTYPES] + [("number", t) for t in NUMBERS]


def make(kind, which, device):
    return NUMBERS[which] if kind == "number" else values(which, SHAPES[kind], device)


PAIRS = [
    (a, b)
    for a, b in itertools.product(OPERANDS, OPERANDS)
    if not (a[0] == "number" and b[0] == "number")
]


@pytest.mark.parametrize("default", [torch.float32, torch.float64, torch.bfloat16])
def test_the_common_type_of_every_pair(default):
    torch.set_default_dtype(default)
    try:
        with set_eager_mode(EagerMode.DEFER_AND_FUSE):
            for a, b in PAIRS:
                x, y = (make(*o, "cpu") for o in (a, b))
                u, v = (make(*o, "tpu") for o in (a, b))
                want = outcome(torch.result_type, x, y)
                if isinstance(
                    want, Exception
                ):  # uint16, uint32 and uint64 promote with floats only
                    assert isinstance(outcome(torch.result_type, u, v), type(want)), (a, b)
                    assert isinstance(outcome(torch.add, u, v), type(want)), (a, b)
                    continue
                assert torch.result_type(u, v) == want, (a, b)
                got = outcome(torch.add, u, v)
                if want == torch.complex32:  # StableHLO has no such type
                    assert isinstance(got, NotImplementedError), (a, b)
                    continue
                assert got.dtype == want, (a, b, got, want)
                assert got.device.type == "tpu"
                assert got.shape == torch.broadcast_shapes(
                    *(getattr(t, "shape", ()) for t in (x, y))
                )
    finally:
        torch.set_default_dtype(torch.float32)


def expected(name, x, y):
    """What the CPU gives, or an error that is not only a missing kernel; None: it cannot tell."""
    want = outcome(OPS[name], x, y)
    return None if isinstance(want, Exception) and lacks_kernel(want) else want


def meets_in_complex32(x, y):
    """Half with a complex number: StableHLO has no type for it, and tpu says so."""
    return outcome(torch.result_type, x, y) == torch.complex32


@pytest.mark.parametrize("name", OPS)
def test_result_types_of_ops(name):
    with set_eager_mode(EagerMode.DEFER_AND_FUSE):
        told = 0
        for a, b in PAIRS:
            if name in ("maximum", "atan2") and "number" in (a[0], b[0]):
                continue
            x, y = (make(*o, "cpu") for o in (a, b))
            want = expected(name, x, y)
            got = outcome(OPS[name], *(make(*o, "tpu") for o in (a, b)))
            if want is None:
                continue
            told += 1
            if isinstance(want, Exception):
                assert isinstance(settled(got), type(want)), (a, b, got, want)
            elif meets_in_complex32(x, y) and name != "logical_and":
                assert isinstance(got, NotImplementedError), (a, b, got)
            else:
                assert not isinstance(got, Exception), (a, b, got)
                assert got.dtype == want.dtype and got.shape == want.shape, (
                    a,
                    b,
                    got.dtype,
                    want.dtype,
                )
        assert told > len(PAIRS) / 4


@pytest.mark.parametrize("left", DTYPES, ids=str)
def test_values_of_every_pair(left):
    names = ["add", "mul", "div", "eq", "pow", "floor_divide", "where"]
    made = []
    with set_eager_mode(EagerMode.DEFER_AND_FUSE):
        for kind, (other, right), name in itertools.product(SHAPES, OPERANDS, names):
            x, y = make(kind, left, "cpu"), make(other, right, "cpu")
            u, v = make(kind, left, "tpu"), make(other, right, "tpu")
            for args, mine in (((x, y), (u, v)), ((y, x), (v, u))):
                want = expected(name, *args)
                if want is None or isinstance(want, Exception) or meets_in_complex32(*args):
                    continue
                made.append((name, args, want, OPS[name](*mine)))
        copies = [m[3].reshape(-1).to(torch.complex128) for m in made]
        together = torch.cat(copies).cpu()
    at = 0
    for name, args, want, got in made:
        assert got.dtype == want.dtype
        part = together[at : at + want.numel()]
        at += want.numel()
        near = 0.02 if want.dtype in (torch.bfloat16, torch.float16) else 1e-5
        ok = torch.allclose(part, want.reshape(-1).to(torch.complex128), rtol=near, equal_nan=True)
        assert ok, (name, args, part, want)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_float8_promotes_with_nothing(dtype):
    x = torch.tensor([1.0, 2.0]).to(dtype)
    u = x.to("tpu")
    assert u.dtype == dtype and torch.equal(u.cpu().view(torch.uint8), x.view(torch.uint8))
    for other in (torch.float32, torch.int64, torch.bfloat16):
        y = torch.ones(2, dtype=other)
        want = outcome(torch.add, x, y)
        assert isinstance(want, Exception)
        assert isinstance(outcome(torch.add, u, y.to("tpu")), type(want)), other
    assert u.to(torch.float32).tolist() == x.to(torch.float32).tolist()


@pytest.mark.parametrize("name", ["add_", "mul_", "div_", "sub_"])
def test_in_place_results_keep_their_type_or_are_refused(name):
    with set_eager_mode(EagerMode.DEFER_AND_FUSE):
        for left in DTYPES:
            for kind, right in OPERANDS:
                x, y = values(left, (3,)), make(kind, right, "cpu")
                u, v = values(left, (3,), "tpu"), make(kind, right, "tpu")
                want = outcome(getattr(x, name), y)
                got = outcome(getattr(u, name), v)
                if isinstance(want, Exception) and lacks_kernel(want):
                    continue
                if isinstance(want, Exception):
                    assert isinstance(settled(got), type(want)), (left, kind, right, got, want)
                else:
                    assert got is u and got.dtype == left, (left, kind, right, got)


def test_out_results_are_cast_or_refused():
    for to in DTYPES:
        for dtype in (torch.int64, torch.float32, torch.complex64):
            x, u = values(dtype, (3,)), values(dtype, (3,), "tpu")
            want = outcome(lambda x=x, to=to: torch.add(x, x, out=torch.empty(3, dtype=to)))
            got = outcome(
                lambda u=u, to=to: torch.add(u, u, out=torch.empty(3, dtype=to, device="tpu"))
            )
            if isinstance(want, Exception):
                assert type(got) is type(want), (to, dtype, got)
            else:
                assert torch.equal(got.cpu(), want), (to, dtype)
