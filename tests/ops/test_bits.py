"""Lazy conjugates and negations, signed zeros, sizes that overflow."""

import pytest
import torch
from helpers import same

Z = torch.complex(torch.arange(9.0).view(3, 3), torch.tensor([[1.0, 2, 3], [0, 1, 1], [2, 5, 1]]))
V = Z[0].clone()


def neg(x):
    return torch._neg_view(x)


CASES = {
    "mm": lambda z, v: z @ z.mH,
    "bmm": lambda z, v: torch.bmm(z.expand(2, 3, 3), z.mH.expand(2, 3, 3)),
    "addmm": lambda z, v: torch.addmm(z.conj(), z.conj(), z.mH),
    "baddbmm": lambda z, v: torch.baddbmm(z[None].conj(), z[None].conj(), z[None]),
    "dot": lambda z, v: torch.dot(v.conj(), v),
    "vdot": lambda z, v: torch.vdot(v.conj(), v),
    "mv": lambda z, v: z.conj() @ v,
    "linear": lambda z, v: torch.nn.functional.linear(v, z.conj()),
    "einsum": lambda z, v: torch.einsum("ij,kj->ik", z, z.conj()),
    "power": lambda z, v: torch.linalg.matrix_power(z.conj(), 3),
    "out": lambda z, v: torch.mm(z, z.conj(), out=torch.empty_like(z)),
    "out_conj": lambda z, v: torch.mm(z, z, out=torch.empty_like(z).conj()),
    "addmm_": lambda z, v: z.clone().conj().addmm_(z, z),
    "imag": lambda z, v: z.conj().imag @ z.real,
    "neg": lambda z, v: neg(z.real) @ neg(neg(z.imag)),
    "triangular": lambda z, v: torch.linalg.solve_triangular(
        z.conj().triu() + 20, neg(z.real).to(z.dtype).mH.conj(), upper=True
    ),
    "triangular_neg": lambda z, v: torch.linalg.solve_triangular(
        neg(z.real.triu() + 20 * torch.eye(3, device=z.device)), z.real, upper=True
    ),
    "svd": lambda z, v: torch.linalg.svdvals(z.conj()),
    "gradient": lambda z, v: torch.autograd.grad((z.requires_grad_() @ z.conj()).abs().sum(), z)[0],
}


@pytest.mark.parametrize("name", CASES)
def test_lazy_bits_are_seen(name, mode):
    z, v = (x.clone().to("tpu") for x in (Z, V))
    same(CASES[name](z, v), CASES[name](Z.clone(), V.clone()))


def test_a_number_keeps_the_sign_of_its_zero(mode):
    x = torch.ones(2, device="tpu")
    for number in (-0.0, 0.0, -0.0):
        for f in (
            lambda x, n: 1 / (x * n),
            lambda x, n: x / n,
            lambda x, n: x.clone().fill_(n),
            lambda x, n: torch.full((2,), n, device=x.device),
            lambda x, n: torch.copysign(x, n),
        ):
            got, want = f(x, number).cpu(), f(x.cpu(), number)
            assert torch.equal(got, want) and torch.equal(got.signbit(), want.signbit())


@pytest.mark.parametrize("make", [torch.ones, torch.empty, torch.zeros])
def test_sizes_that_overflow_are_refused(make):
    for size in (1 << 62, (1 << 61) + 3):
        with pytest.raises(RuntimeError, match="overflow"):
            make(size, device="tpu")


@pytest.mark.parametrize("make", [torch.conj, lambda z: z.conj().imag, lambda z: z.mH])
def test_copies_below_a_dispatch_mode(make):
    """There the keys of the bits do not lead to their kernels: ours look at the bits themselves."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Plain(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    on_cpu = torch.randn(3, 3, dtype=torch.complex64)
    lazy, want = make(on_cpu.to("tpu")), make(on_cpu)
    with Plain():
        copies = [lazy.clone(), lazy.cpu(), torch.empty_like(lazy).copy_(lazy), lazy * 1]
        number = lazy[0, 1].item()
    for copy in copies:
        torch.testing.assert_close(copy.cpu(), want.resolve_conj().resolve_neg())
    assert number == want[0, 1].item()
