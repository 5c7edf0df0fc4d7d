"""Linear algebra against the CPU: values, gradients, batches, empty, singular and NaN matrices."""

import re

import pytest
import torch
from helpers import run_python, same
from torch import linalg

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
TOLERANCE = {torch.float32: 2e-3, torch.complex64: 2e-3}


def hermitian(a):
    return a + a.mH


def positive(a):
    return a @ a.mH + torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)


def tall(a):
    return a[..., :2]


def wide(a):
    return a[..., :2, :]


def projections(v):
    """What does not depend on the phases of the columns of v."""
    return (v @ v.mH, v.abs())


def right(a):
    return a[..., :2].sin()


def lu_solve(a, *, left=True, adjoint=False):
    b = right(a) if left else right(a).mT
    return linalg.lu_solve(*linalg.lu_factor(a), b, left=left, adjoint=adjoint)


def reflectors(a):
    h, tau = torch.geqrf(tall(a))
    return h, tau, linalg.householder_product(h, tau)


def ldl(a):
    h = hermitian(a) if a.is_complex() else a + a.mT
    factors, pivots = linalg.ldl_factor(h, hermitian=a.is_complex())
    return factors, pivots, linalg.ldl_solve(factors, pivots, right(a), hermitian=a.is_complex())


# From a square matrix to tensors that are unique. Names that start with an underscore: no gradient.
FUNCTIONS = {
    "lu_factor": lambda a: linalg.lu_factor(a),
    "lu_factor wide": lambda a: linalg.lu_factor(wide(a)),
    "lu": lambda a: linalg.lu(tall(a)),
    "lu_unpack": lambda a: torch.lu_unpack(*linalg.lu_factor(a)),
    "lu_solve": lu_solve,
    "lu_solve right": lambda a: lu_solve(a, left=False),
    "lu_solve adjoint": lambda a: lu_solve(a, adjoint=True),
    "solve": lambda a: linalg.solve(a, right(a)),
    "solve right": lambda a: linalg.solve(a, right(a).mT, left=False),
    "inv": lambda a: linalg.inv(a),
    "det": lambda a: linalg.det(a),
    "slogdet": lambda a: linalg.slogdet(a),
    "qr": lambda a: linalg.qr(tall(a)),
    "qr wide": lambda a: linalg.qr(a),
    "_qr complete": lambda a: linalg.qr(tall(a), mode="complete"),
    "_qr r": lambda a: linalg.qr(tall(a), mode="r")[1],
    "_geqrf": reflectors,
    "_ormqr": lambda a: torch.ormqr(*torch.geqrf(a), right(a)),
    "_ormqr right": lambda a: torch.ormqr(
        *torch.geqrf(a), right(a).mT.contiguous(), left=False, transpose=True
    ),
    "eigvalsh": lambda a: linalg.eigvalsh(hermitian(a)),
    "eigh": lambda a: (lambda e: (e[0], *projections(e[1])))(linalg.eigh(a, UPLO="L")),
    "_eigh upper": lambda a: linalg.eigh(a, UPLO="U")[0],
    "svdvals": lambda a: linalg.svdvals(a),
    "svd": lambda a: (lambda f: (f[1], f[0].abs(), f[2].abs()))(linalg.svd(tall(a), False)),
    "svd wide": lambda a: (lambda f: (f[1], f[0].abs(), f[2].abs()))(linalg.svd(wide(a), False)),
    "_svd full": lambda a: (lambda f: (f[1], f[0].abs(), f[0] @ f[0].mH))(linalg.svd(tall(a))),
    "pinv": lambda a: linalg.pinv(tall(a)),
    "cholesky": lambda a: linalg.cholesky(positive(a)),
    "cholesky upper": lambda a: linalg.cholesky(positive(a), upper=True),
    "cholesky_solve": lambda a: torch.cholesky_solve(right(a), linalg.cholesky(positive(a))),
    "cholesky_inverse": lambda a: torch.cholesky_inverse(linalg.cholesky(positive(a))),
    "solve_triangular": lambda a: linalg.solve_triangular(a, right(a), upper=True),
    "solve_triangular right": lambda a: linalg.solve_triangular(
        a, right(a).mT, upper=False, left=False, unitriangular=True
    ),
    "triangular_solve transposed": lambda a: torch.triangular_solve(right(a), a, transpose=True)[0],
    "lstsq": lambda a: linalg.lstsq(tall(a), right(a)).solution,
    "_ldl": ldl,
}


def matrices(batch, n, dtype):
    torch.manual_seed(n)
    # Away from singular ones, with eigenvalues and singular values apart.
    return torch.randn(*batch, n, n, dtype=dtype) + torch.diag(torch.arange(1.0, n + 1)).to(dtype)


def tensors(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def gradient(f, a):
    x = a.clone().requires_grad_()
    real = [torch.view_as_real(r.resolve_conj()) if r.is_complex() else r for r in tensors(f(x))]
    total = sum((r * r.detach().cos()).sum() for r in real if r.requires_grad)
    return torch.autograd.grad(total, x)[0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_on_the_cpu(name, dtype):
    f, tolerance = FUNCTIONS[name], TOLERANCE.get(dtype, 1e-8)
    for batch in ((), (2, 2)):
        a = matrices(batch, 4, dtype)
        for got, want in zip(tensors(f(a.to("tpu"))), tensors(f(a)), strict=True):
            same(got, want, rtol=tolerance, atol=tolerance)
        if not name.startswith("_"):
            loose = 10 * tolerance
            same(gradient(f, a.to("tpu")), gradient(f, a), rtol=loose, atol=loose)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3), (2, 0, 0), (3, 0), (0, 3)], ids=str)
@pytest.mark.parametrize(
    "f",
    [
        linalg.lu_factor_ex,
        linalg.lu,
        linalg.inv_ex,
        linalg.slogdet,
        linalg.qr,
        torch.geqrf,
        linalg.eigh,
        linalg.svd,
        linalg.eig,
        linalg.cholesky_ex,
        linalg.ldl_factor_ex,
    ],
    ids=lambda f: f.__name__,
)
def test_empty(f, shape):
    a = torch.zeros(shape)
    try:
        want = tensors(f(a))
    except RuntimeError as e:
        with pytest.raises(type(e)):
            f(a.to("tpu"))
        return
    for g, w in zip(tensors(f(a.to("tpu"))), want, strict=True):
        same(g, w)


def two(good, bad):
    return torch.stack([good, bad])


SINGULAR = two(torch.eye(3), torch.ones(3, 3))
NOT_POSITIVE = two(torch.eye(3), torch.diag(torch.tensor([1.0, -1.0, 1.0])))
NAN = two(torch.eye(3), torch.full((3, 3), torch.nan))


@pytest.mark.parametrize(
    ("f", "a", "text"),
    [
        (linalg.inv, SINGULAR, "singular"),
        (lambda a: linalg.solve(a, a), SINGULAR, "singular"),
        (linalg.cholesky, NOT_POSITIVE, "not positive-definite"),
        (linalg.eigh, NAN, "failed to converge"),
        (linalg.eigvalsh, NAN, "failed to converge"),
        (linalg.svd, NAN, "failed to converge"),
        (linalg.svdvals, NAN, "failed to converge"),
    ],
    ids=["inv", "solve", "cholesky", "eigh", "eigvalsh", "svd", "svdvals"],
)
def test_failure(f, a, text):
    with pytest.raises(linalg.LinAlgError):
        f(a)
    with pytest.raises(linalg.LinAlgError, match=text):
        [t.cpu() for t in tensors(f(a.to("tpu")))]


@pytest.mark.parametrize(
    ("f", "a"),
    [(linalg.lu_factor, SINGULAR), (linalg.ldl_factor, two(torch.eye(3), torch.zeros(3, 3)))],
    ids=["lu_factor", "ldl_factor"],
)
def test_singular_factor(f, a):
    with pytest.raises(RuntimeError) as on_cpu:
        f(a)
    with pytest.raises(RuntimeError, match=re.escape(str(on_cpu.value))):
        f(a.to("tpu"))


def test_codes_name_the_matrix():
    same(linalg.lu_factor_ex(SINGULAR.to("tpu")).info, linalg.lu_factor_ex(SINGULAR).info)
    same(linalg.inv_ex(SINGULAR.to("tpu")).info, linalg.inv_ex(SINGULAR).info)
    for upper in (False, True):
        want = linalg.cholesky_ex(NOT_POSITIVE, upper=upper).info
        same(linalg.cholesky_ex(NOT_POSITIVE.to("tpu"), upper=upper).info, want)


def test_determinant_of_singular_and_nan_matrices():
    a = torch.cat([SINGULAR, NAN])
    same(linalg.det(a.to("tpu")), linalg.det(a))
    same(linalg.slogdet(a.to("tpu")).logabsdet, linalg.slogdet(a).logabsdet)


def test_pivots_of_no_factorization():
    factors = torch.eye(3).to("tpu")
    for pivots in ([1, 2, 9], [1, 2, -3], [0, 2, 3]):
        with pytest.raises(RuntimeError, match="pivots"):
            p = torch.tensor(pivots, dtype=torch.int32, device="tpu")
            linalg.ldl_solve(factors, p, factors).cpu()
    with pytest.raises(RuntimeError, match="pivots"):
        p = torch.tensor([1, 2, 9], dtype=torch.int32, device="tpu")
        torch.lu_unpack(factors, p)[0].cpu()
    assert linalg.det(factors) == 1  # the device is usable


def test_under_a_dispatch_mode():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    a = matrices((), 3, torch.float32)
    with Mode():
        got = linalg.inv(a.to("tpu")).cpu()
    torch.testing.assert_close(got, linalg.inv(a))
    assert not [s for s in seen if "lu_factor" in s]  # of the host's kernels


ALL = """
    import torch
    from torch_tpu import debug
    a = (torch.arange(9.0).reshape(3, 3).sin() + torch.eye(3)).to("tpu")
    h = a + a.mT
    found = [
        torch.linalg.inv(a), torch.linalg.det(a), torch.linalg.qr(a)[1], torch.linalg.svdvals(a),
        torch.linalg.eigvalsh(h), torch.linalg.eigvals(a).abs().sort()[0],
        torch.linalg.cholesky(a @ a.mT), torch.linalg.ldl_factor(h)[0],
        torch.linalg.lu(a)[0], torch.ormqr(*torch.geqrf(a), a),
    ]
    print([[round(x, 4) + 0.0 for x in t.flatten().tolist()] for t in found])
    print({k: debug.counters()[k] for k in ("compiles", "disk_hits", "fallbacks")})
"""


def test_programs_are_kept_on_disk(tmp_path):
    env = {"TORCH_TPU_CACHE_DIR": str(tmp_path), "TORCH_TPU_COMPILE_TIER": "full"}
    first, again = (run_python(ALL, **env) for _ in range(2))
    assert first.splitlines()[0] == again.splitlines()[0]
    assert "'compiles': 0" in again and "'compiles': 0" not in first


def test_without_lapack(tmp_path):
    """The loops that plugins get which cannot call the host."""
    dump = tmp_path / "modules"
    env = {"TORCH_TPU_CACHE_DIR": str(tmp_path), "TORCH_TPU_DUMP_DIR": str(dump)}
    loops = run_python(ALL, TORCH_TPU_LAPACK="0", TORCH_TPU_COMPILE_TIER="fast", **env)
    texts = [p.read_text() for p in dump.iterdir()]
    assert texts and not any("torch_tpu." in t for t in texts)
    host = run_python(ALL, **env)
    assert loops.splitlines()[0].replace("-", "") == host.splitlines()[0].replace("-", "")
    assert any('"torch_tpu.svd"' in p.read_text() for p in dump.iterdir())
