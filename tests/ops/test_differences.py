"""Where results differ from the CPU's on purpose: what they are instead (expectations.py)."""

import pytest
import torch
from helpers import exact, same


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_equal_values_come_in_order_of_their_indices(dtype, descending):
    torch.manual_seed(0)
    x = torch.randint(0, 2, (3, 2000)).to(dtype)
    values, order = torch.sort(x.to("tpu"), descending=descending)
    want = torch.sort(x, descending=descending, stable=True)
    exact(values, want.values)
    exact(order, want.indices)


def test_topk_and_kthvalue_take_the_first_of_equal_values():
    x = torch.tensor([[3, 1, 3, 2, 1, 3]])
    assert torch.topk(x.to("tpu"), 2).indices.tolist() == [[0, 2]]
    assert torch.topk(x.to("tpu"), 2, largest=False).indices.tolist() == [[1, 4]]
    assert torch.kthvalue(x.to("tpu"), 1).indices.tolist() == [1]


@pytest.mark.parametrize("form", ["layer", "batch"])
def test_statistics_of_bfloat16_are_float32(form):
    torch.manual_seed(0)
    x = torch.randn(4, 6, 50).bfloat16()
    t = x.to("tpu")
    if form == "layer":
        mean = torch.native_layer_norm(t, [50], None, None, 1e-5)[1]
        want = x.float().mean(-1, keepdim=True)
    else:
        weight = torch.ones(6, dtype=torch.bfloat16, device="tpu")
        mean = torch.native_batch_norm(t, weight, weight, None, None, True, 0.1, 1e-5)[1]
        want = x.float().mean((0, 2))
    same(mean, want, rtol=1e-5, atol=1e-6)


def test_matrix_exponential_of_bfloat16_is_finite():
    torch.manual_seed(0)
    a = (8 * torch.rand(5, 5) - 2).bfloat16()
    want = torch.linalg.matrix_exp(a.double())
    assert want.isfinite().all()
    same(torch.linalg.matrix_exp(a.to("tpu")).double(), want, rtol=2e-2, atol=1)


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_gradients_of_sparse_products_are_summed_in_float32(reduce):
    torch.manual_seed(0)
    dense = torch.randn(12, 9)
    dense[dense.abs() < 0.5] = 0
    other, gradient = torch.randn(9, 40).bfloat16(), torch.randn(12, 40).bfloat16()

    def of(device, dtype):
        a = dense.bfloat16().to(dtype).to_sparse_csr().to(device).requires_grad_()
        result = torch.sparse.mm(a, other.to(device, dtype), reduce)
        return torch.autograd.grad(result, a, gradient.to(device, dtype))[0].cpu().to_dense()

    want = of("cpu", torch.float64)
    assert torch.allclose(of("tpu", torch.bfloat16).double(), want, rtol=2**-8, atol=1e-6)


def test_complex_half_is_refused():
    with pytest.raises(NotImplementedError, match="ComplexHalf tensors cannot be on a tpu device"):
        torch.ones(2, device="tpu").chalf()
