"""Every module that the printer can write is parsed, verified, compiled and run by jaxlib.

The modules come from the program `hlo_print_samples_test` of the C++ tests:
TORCH_TPU_TEST_HLO_SAMPLES names it, else the newest one under a build folder of the repository is
taken. What a module computes is compared with NumPy where ELEMENTWISE or EXPECTED has a rule for
it.
"""

import atexit
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")
ml_dtypes = pytest.importorskip("ml_dtypes")
special = pytest.importorskip("scipy.special")
mlir = pytest.importorskip("jax._src.interpreters.mlir")
xla_client = pytest.importorskip("jaxlib.xla_client")
ir = pytest.importorskip("jaxlib.mlir.ir")
chlo = pytest.importorskip("jaxlib.mlir.dialects.chlo")
stablehlo = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find_program() -> pathlib.Path | None:
    """The sample writer, or None where the C++ tests are not built."""
    if named := os.environ.get("TORCH_TPU_TEST_HLO_SAMPLES"):
        return pathlib.Path(named)
    found = [p for b in ROOT.glob("build*") for p in b.rglob("hlo_print_samples_test")]
    return max(found, key=lambda p: p.stat().st_mtime, default=None)


def write_samples() -> dict[str, str]:
    """Module texts by name."""
    program = find_program()
    if program is None:
        pytest.skip("the C++ tests are not built", allow_module_level=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="torch_tpu_hlo_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run([program, folder, "--filter=print_samples"], check=True, capture_output=True)
    return {p.stem: p.read_text() for p in sorted(folder.glob("*.mlir"))}


SAMPLES = write_samples()
CONTEXT = mlir.make_ir_context()
stablehlo.register_dialect(CONTEXT)
chlo.register_dialect(CONTEXT)

# jaxlib's CPU knows none of these targets, and one device is no group of two.
NOT_RUN = {"custom_call", "collectives_2"}

DTYPES = {
    "i1": np.bool_,
    "ui8": np.uint8,
    "ui16": np.uint16,
    "ui32": np.uint32,
    "ui64": np.uint64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
}
SUFFIXES = {re.sub("[<>]", "_", k): v for k, v in DTYPES.items()}


def wide(x):
    """In the precision that the comparison is made in."""
    x = np.asarray(x)
    if np.iscomplexobj(x):
        return x.astype(np.complex128)
    return x.astype(np.float64) if x.dtype.kind not in "biu" else x


def round_away(x):
    return np.trunc(x + np.copysign(0.5, x))


def leading_zeros(x):
    bits = 8 * x.dtype.itemsize
    count = [bits - int(v).bit_length() if v >= 0 else 0 for v in x.ravel()]
    return np.reshape(count, x.shape)


def truncated_divide(a, b):
    return np.trunc(a / b) if a.dtype.kind in "iu" else a / b


ELEMENTWISE = {
    "stablehlo_abs": np.abs,
    "stablehlo_cbrt": np.cbrt,
    "stablehlo_ceil": np.ceil,
    "stablehlo_cosine": np.cos,
    "stablehlo_count_leading_zeros": leading_zeros,
    "stablehlo_exponential": np.exp,
    "stablehlo_exponential_minus_one": np.expm1,
    "stablehlo_floor": np.floor,
    "stablehlo_log": np.log,
    "stablehlo_log_plus_one": np.log1p,
    "stablehlo_logistic": lambda x: 1 / (1 + np.exp(-x)),
    "stablehlo_negate": np.negative,
    "stablehlo_not": np.invert,
    "stablehlo_popcnt": lambda x: np.bitwise_count(x.view(f"u{x.dtype.itemsize}")),
    "stablehlo_round_nearest_afz": round_away,
    "stablehlo_round_nearest_even": np.rint,
    "stablehlo_rsqrt": lambda x: 1 / np.sqrt(x),
    "stablehlo_sign": np.sign,
    "stablehlo_sine": np.sin,
    "stablehlo_sqrt": np.sqrt,
    "stablehlo_tan": np.tan,
    "stablehlo_tanh": np.tanh,
    "chlo_acos": np.arccos,
    "chlo_acosh": np.arccosh,
    "chlo_asin": np.arcsin,
    "chlo_asinh": np.arcsinh,
    "chlo_atan": np.arctan,
    "chlo_atanh": np.arctanh,
    "chlo_bessel_i1e": special.i1e,
    "chlo_conj": np.conj,
    "chlo_cosh": np.cosh,
    "chlo_digamma": special.digamma,
    "chlo_erf": special.erf,
    "chlo_erf_inv": special.erfinv,
    "chlo_erfc": special.erfc,
    "chlo_is_inf": np.isinf,
    "chlo_is_neg_inf": np.isneginf,
    "chlo_is_pos_inf": np.isposinf,
    "chlo_lgamma": special.gammaln,
    "chlo_sinh": np.sinh,
    "stablehlo_add": np.add,
    "stablehlo_and": np.bitwise_and,
    "stablehlo_atan2": np.arctan2,
    "stablehlo_divide": truncated_divide,
    "stablehlo_maximum": np.maximum,
    "stablehlo_minimum": np.minimum,
    "stablehlo_multiply": np.multiply,
    "stablehlo_or": np.bitwise_or,
    "stablehlo_power": np.power,
    "stablehlo_remainder": np.fmod,
    "stablehlo_shift_left": np.left_shift,
    "stablehlo_shift_right_arithmetic": lambda a, n: (a.view("b") if a.itemsize == 1 else a) >> n,
    "stablehlo_shift_right_logical": lambda a, n: a.view(f"u{a.itemsize}") >> n.astype(np.uint8),
    "stablehlo_subtract": np.subtract,
    "stablehlo_xor": np.bitwise_xor,
    "is_finite": np.isfinite,
    "compare_0": np.equal,
    "compare_1": np.not_equal,
    "compare_2": np.greater_equal,
    "compare_3": np.greater,
    "compare_4": np.less_equal,
    "compare_5": np.less,
    "select": np.where,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}


def conv2d(x, k):
    """Strides (2, 1), dilation (1, 2), two groups, paddings (1, 0) and (0, 2)."""
    x = np.pad(wide(x), ((0, 0), (0, 0), (1, 0), (0, 2)))
    k = wide(k)
    out = np.zeros((2, 6, 4, 8), np.result_type(x, k))
    for o in range(6):
        group = x[:, 2 * (o // 3) : 2 * (o // 3) + 2]
        for r in range(4):
            for c in range(8):
                window = group[:, :, 2 * r : 2 * r + 3, c : c + 3 : 2]
                out[:, o, r, c] = (window * k[o]).sum((1, 2, 3))
    return out


def conv_nhwc_transposed(x, k):
    """Input dilation 2, padding 2, reversed kernel: each input element spreads the kernel."""
    out = np.zeros((1, 11, 4))
    for i in range(5):
        for j in range(3):
            out[0, 2 * i + j] += k[j] @ x[0, i]
    return out


def conv_batch_groups(x, k):
    out = np.zeros((2, 6, 3))
    for o in range(6):
        half = x[2 * (o // 3) : 2 * (o // 3) + 2]
        for i in range(3):
            out[:, o, i] = (half[:, :, i : i + 3] * k[o]).sum((1, 2))
    return out


def padded(x, v):
    out = np.full((5, 4), v, x.dtype)
    out[1:5:3, 0:2] = x[:, 1:]
    return [out, np.concatenate([np.full((1, 3), v, x.dtype), x])]


def window_reduce(x, init):
    if np.iscomplexobj(x):
        pairs = x[:, 0::2] + x[:, 1::2]
        return init + pairs[:, :, 0:3] + pairs[:, :, 1:4] + pairs[:, :, 2:5]
    low = False if x.dtype == np.bool_ else -100 if x.dtype != np.uint8 else 0
    spread = np.full((3, 5, 11), low, x.dtype)
    spread[:, 1:, 0:9:2] = x
    out = np.empty((3, 2, 9), x.dtype)
    for r in range(2):
        for c in range(9):
            out[:, r, c] = spread[:, 2 * r : 2 * r + 3 : 2, c : c + 3].max((1, 2))
    return np.maximum(out, init)


def unpool(x, source, init):
    out = np.full(x.shape, init, source.dtype)
    for r in range(2):
        for c in range(2):
            block = x[2 * r : 2 * r + 2, 2 * c : 2 * c + 2]
            i, j = np.unravel_index(block.argmax(), (2, 2))
            out[2 * r + i, 2 * c + j] += source[r, c]
    return out


def sorted_by_first(keys, values):
    order = np.argsort(wide(keys), axis=1, kind="stable")
    return [np.take_along_axis(v, order, 1) for v in (keys, values)]


def top_k(x):
    order = np.argsort(-wide(x).astype(np.float64), axis=1, kind="stable")[:, :2]
    return [np.take_along_axis(x, order, 1), order]


def update_slice(x, update, i, j):
    out = x.copy()
    i, j = np.clip(i, 0, 1), np.clip(j, 0, 1)
    out[i : i + 1, j : j + 2] = update
    return out


def dynamic_slice(x, i, j):
    i, j = np.clip(i, 0, 1), np.clip(j, 0, 1)
    return x[i : i + 1, j : j + 2]


def scatter_set(x, indices, updates):
    out = x.copy()
    out[indices[:, 0]] = updates
    return out


def scatter_add_batch(x, indices, updates):
    out = x.copy()
    for b in range(5):
        np.add.at(out[b], indices[b, :, 0], updates[b])
    return out


def scatter_two(a, b, indices, ua, ub):
    a, b = a.copy(), b.copy()
    for i, row in enumerate(indices):
        a[row] += ua[i]
        b[row] = np.maximum(b[row], ub[i])
    return [a, b]


def nested(i, x):
    while i < 5:
        x = x if x.sum() > 10 else x + 1
        i = i + 1
    return [i, x]


def solve(form):
    def rule(a, b):
        a = np.triu(wide(a))
        if form == "T":
            np.fill_diagonal(a, 1)
        return np.linalg.solve({"N": a, "T": a.T, "C": a.conj().T}[form], wide(b))

    return rule


EXPECTED = {
    "compare_total": np.less,
    "select_scalar": np.where,
    "bitcast_same": lambda x: x.view(np.int32),
    "bitcast_narrow": lambda x: x.view(np.uint8).reshape(2, 4, 4),
    "bitcast_wide": lambda x: x.view(np.uint64)[:, 0],
    "complex": lambda re, im: [re + 1j * im, re, im, np.zeros_like(re)],
    "reduce_precision": lambda x: x.astype(ml_dtypes.float8_e5m2),
    "broadcast_in_dim": lambda x, s: [
        np.broadcast_to(x.T[:, None, :], (3, 4, 2)),
        np.broadcast_to(s, (2, 0)),
    ],
    "reshape": lambda x: [x.reshape(3, 2), x.ravel()],
    "transpose": np.transpose,
    "reverse": lambda x: x[:, ::-1],
    "slice": lambda x: [x[0:1, 1:3], x[:, ::2]],
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": update_slice,
    "pad": padded,
    "concatenate": lambda x, y: np.concatenate([x, y, x], 1),
    "barrier": lambda x, y: [x, y],
    "dot": lambda a, b: wide(a) @ wide(b),
    "dot_batch": lambda a, b: wide(a) @ wide(b).transpose(1, 0, 2),
    "dot_outer": np.outer,
    "conv": conv2d,
    "conv_nhwc_transposed": conv_nhwc_transposed,
    "conv_pointwise": lambda x, k: x @ k.T,
    "conv_batch_groups": conv_batch_groups,
    "reduce_add": lambda x, init: (
        (x.any((0, 2)) | init)
        if x.dtype == np.bool_
        else (wide(x).sum((0, 2)) + wide(init)).astype(x.dtype)
    ),
    "reduce_argmax": lambda x, i: [x.max(1), np.take_along_axis(i, x.argmax(1)[:, None], 1)[:, 0]],
    "reduce_window_max": window_reduce,
    "select_and_scatter": unpool,
    "sort": sorted_by_first,
    "top_k": top_k,
    "gather": lambda x, i: x[i[:, 0]],
    "gather_batch": lambda x, i: np.take_along_axis(x, i[:, :, 0], 1),
    "scatter_set": scatter_set,
    "scatter_add_batch": scatter_add_batch,
    "scatter_two": scatter_two,
    "while": lambda i, x, step: [max(i, 5), x + max(5 - i, 0) * step],
    "if": lambda p, x: [-x, x] if p else [x, x * x],
    "case": lambda i, x: [x, -x, np.sqrt(x)][i if 0 <= i < 3 else 2],
    "nested": nested,
    "no_results": lambda x: [],
    "passed_through": lambda x, s: [x, s],
    "located": lambda x: -np.sort(x + x),
    "cholesky": lambda a: np.linalg.cholesky(wide(a)),
    "triangular_solve_N": solve("N"),
    "triangular_solve_T": solve("T"),
    "triangular_solve_C": solve("C"),
    "rfft": lambda x: [np.fft.rfft(x), x],
    "fft": lambda x: [np.fft.fft2(x), x],
    "constant_bool_list": lambda: np.array([[1, 0], [0, 1]], np.bool_),
    "constant_empty_list": lambda: np.zeros(0, np.int64),
    "collectives_1": lambda x: [x, x, x, x, x, 0, 0],
}

# Integers that these take must not be negative.
NON_NEGATIVE = (
    "stablehlo_power",
    "stablehlo_shift",
    "scatter",
    "gather",
    "if",
    "case",
    "stablehlo_log",
    "stablehlo_sqrt",
    "stablehlo_rsqrt",
    "chlo_lgamma",
    "chlo_digamma",
    "chlo_polygamma",
    "chlo_zeta",
)
TOLERANCES = {2: 2e-2, 4: 2e-5, 8: 1e-12}


def split_name(name):
    """Rule and element type of a sample."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.endswith("_" + suffix):
            return name[: -len(suffix) - 1], np.dtype(SUFFIXES[suffix])
    return name, None


def constants(dtype):
    """What the `constant_*` samples hold; C++ casts, so integers truncate."""
    kind = dtype.kind
    if kind == "b":
        return [True, True, np.full((2, 3), True), np.ones((0, 2), bool), False, True]
    out = [np.array(1), np.array(0.3), np.full((2, 3), 3.0), np.ones((0, 2))]
    if kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        listed = np.array([0, 1, low if kind == "i" else high, 100, low, high], object)
        listed[2] = -1 if kind == "i" else high
        return [*(v.astype(dtype) for v in out), low, high, listed.reshape(2, 3).astype(dtype)]
    if kind == "c":
        inf, nan = np.inf, np.nan
        return [*out, complex(0.1, -inf), np.array([[0.1, 2], [3, nan]])]
    info = ml_dtypes.finfo(dtype)
    with np.errstate(all="ignore"):
        has_inf = np.isinf(np.array(np.inf).astype(dtype).astype(np.float64))
    low, high = (-np.inf, np.inf) if has_inf else (float(info.min), float(info.max))
    odd = [0.1, 1 / 3, -2.5, 1e-7, 12345.678, np.inf, -np.inf, np.nan, -0.0]
    if dtype == ml_dtypes.float8_e8m0fnu:
        odd[-1] = 2.0**-127  # zero: the smallest value as in PyTorch, NaN in ml_dtypes
    return [*out, low, high, np.array(odd)]


def rule_of(name):
    base, dtype = split_name(name)
    if base == "constant":
        return lambda: constants(dtype)
    if base == "iota":
        return lambda: np.broadcast_to(np.arange(3), (2, 3)).astype(dtype)
    if base.startswith("convert_"):
        return lambda x: (x != 0) if dtype == np.bool_ else x.astype(dtype)
    if base == "stablehlo_atan2" and dtype.kind == "c":
        return None
    if base in ELEMENTWISE:
        return ELEMENTWISE[base]
    return EXPECTED.get(base, EXPECTED.get(name))


def make_input(rng, name, shape, dtype):
    base, _ = split_name(name)
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        x = rng.integers(1, 3 if base.startswith(("gather", "scatter")) else 7, shape)
        if base == "scatter_set" and shape == (2, 1):
            x = np.array([[0], [2]])  # it promises sorted and unique indices
        elif dtype.kind == "i" and not base.startswith(NON_NEGATIVE):
            x = x * rng.choice([-1, 1], shape)
        return np.asarray(x).astype(dtype)
    x = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype.kind == "c" else 0)
    if base == "cholesky":
        x = x @ x.conj().swapaxes(-1, -2) + 3 * np.eye(3)
    if base.startswith("triangular_solve") and shape == (3, 3):
        x = x + 3 * np.eye(3)
    if base.startswith(NON_NEGATIVE) or base == "case":
        x = np.abs(x) + 0.1 if dtype.kind != "c" else x
    if base == "chlo_zeta":
        x = x + 1.5
    return np.asarray(x).astype(dtype)


def parse(text):
    with CONTEXT:
        module = ir.Module.parse(text)
        module.operation.verify()
    return module


def argument_types(module):
    with CONTEXT:
        function = module.body.operations[0]
        types = [ir.RankedTensorType(t) for t in ir.FunctionType(function.type).inputs]
        return [(tuple(t.shape), np.dtype(DTYPES[str(t.element_type)])) for t in types]


def execute(text, inputs):
    device = jax.devices("cpu")[0]
    devices = xla_client.DeviceList((device,))
    program = device.client.compile_and_load(text, devices, xla_client.CompileOptions())
    with jax.enable_x64(True):
        arrays = [jax.device_put(x, device) for x in inputs]
        results = program.execute_sharded(arrays).disassemble_into_single_device_arrays()
        return [np.asarray(r[0]) for r in results]


def check_close(got, want):
    want = np.asarray(want)
    assert got.shape == want.shape
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want.astype(got.dtype))
        return
    with np.errstate(all="ignore"):
        # Into the narrow type first: overflow and float8 have rules of their own.
        narrow = want.astype(got.dtype)
    size = got.dtype.itemsize // (2 if got.dtype.kind == "c" else 1)
    tolerance = TOLERANCES.get(size, 0)
    np.testing.assert_allclose(wide(got), wide(narrow), rtol=tolerance, atol=tolerance)


def test_there_are_enough():
    assert len(SAMPLES) >= 150


@pytest.mark.parametrize("name", SAMPLES)
def test_verifies(name):
    parse(SAMPLES[name])


@pytest.mark.parametrize("name", [n for n in SAMPLES if n not in NOT_RUN])
def test_runs(name):
    rng = np.random.default_rng(0)
    inputs = [make_input(rng, name, *t) for t in argument_types(parse(SAMPLES[name]))]
    got = execute(SAMPLES[name], inputs)
    rule = rule_of(name)
    if rule is None:
        return
    with np.errstate(all="ignore"):
        base, dtype = split_name(name)
        exact = base in ELEMENTWISE and dtype is not None and dtype.kind not in "biu"
        want = rule(*(wide(x) if exact else x for x in inputs))
    want = want if isinstance(want, list) else [want]
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        check_close(g, w)


def test_most_are_compared():
    compared = [n for n in SAMPLES if n not in NOT_RUN and rule_of(n) is not None]
    assert len(compared) >= 400


def test_a_wrong_type_is_noticed():
    """The oracle does refuse: otherwise the tests above say nothing."""
    text = SAMPLES["stablehlo_sine_f32"].replace("stablehlo.sine", "stablehlo.popcnt")
    with pytest.raises(ir.MLIRError, match="popcnt"):
        parse(text)
