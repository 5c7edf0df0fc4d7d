"""Eigenvalues of general matrices: their defining equations, whatever their order."""

import pytest
import torch

CASES = {
    "random": lambda n: torch.randn(n, n, dtype=torch.float64),
    "complex": lambda n: torch.randn(n, n, dtype=torch.complex128),
    "batch": lambda n: torch.randn(2, 2, n, n, dtype=torch.float64),
    "symmetric": lambda n: (lambda a: a + a.mT)(torch.randn(n, n, dtype=torch.float64)),
    "rotation": lambda n: torch.roll(torch.eye(n, dtype=torch.float64), 1, 0),
    "diagonal": lambda n: torch.diag(torch.arange(n, dtype=torch.float64)),
    "float32": lambda n: torch.randn(n, n),
}


def ordered(v):
    """Eigenvalues in an order that rounding does not change."""
    key = v.real.round(decimals=3) * 1e3 + v.imag
    return v.gather(-1, key.argsort(-1))


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("name", CASES)
def test_eigenvalues_and_vectors(name, n):
    torch.manual_seed(n)
    a = CASES[name](n)
    tolerance = 1e-3 if a.dtype is torch.float32 else 1e-9
    values, vectors = (t.cpu() for t in torch.linalg.eig(a.to("tpu")))
    want = torch.linalg.eigvals(a)
    assert values.dtype == want.dtype and values.shape == want.shape
    torch.testing.assert_close(ordered(values), ordered(want), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(
        a.to(vectors.dtype) @ vectors,
        vectors * values[..., None, :],
        rtol=tolerance,
        atol=tolerance,
    )
    length = torch.linalg.vector_norm(vectors, dim=-2)
    torch.testing.assert_close(length, torch.ones_like(length))
    alone = torch.linalg.eigvals(a.to("tpu")).cpu()
    torch.testing.assert_close(ordered(alone), ordered(want), rtol=tolerance, atol=tolerance)


def test_gradients():
    torch.manual_seed(0)
    a = torch.randn(4, 4, dtype=torch.float64)
    grads = []
    for device in ("cpu", "tpu"):
        x = a.to(device, copy=True).requires_grad_()
        values, vectors = torch.linalg.eig(x)
        (values.abs().pow(2).sum() + vectors.abs().pow(4).sum()).backward()
        grads.append(x.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-8, atol=1e-8)


def test_bad_input():
    with pytest.raises(RuntimeError, match="batches of square matrices"):
        torch.linalg.eig(torch.ones(2, 3, device="tpu"))
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        torch.linalg.eig(torch.full((3, 3), float("nan"), device="tpu"))[0].cpu()
    assert torch.linalg.eig(torch.ones(0, 3, 3, device="tpu"))[1].shape == (0, 3, 3)
