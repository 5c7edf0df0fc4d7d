"""Sparse tensors: COO and CSR against the CPU, and jagged rows against padded ones."""

import pytest
import torch
from helpers import exact, same


@pytest.fixture
def coo():
    indices = torch.tensor([[2, 0, 2, 1, 2], [1, 3, 1, 0, 4]])  # one place twice
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    return torch.sparse_coo_tensor(indices, values, (3, 5))


def test_coo_goes_to_the_device_and_back(coo):
    t = coo.to("tpu")
    assert t.layout is torch.sparse_coo and t.device.type == "tpu" and not t.is_coalesced()
    exact(t._indices(), coo._indices())
    exact(t._values(), coo._values())
    assert torch.equal(t.cpu().to_dense(), coo.to_dense())
    made = torch.sparse_coo_tensor(coo._indices().to("tpu"), coo._values().to("tpu"), (3, 5))
    exact(made.to_dense(), coo.to_dense())


@pytest.mark.parametrize("dense_dims", [0, 1])
def test_coalesce(dense_dims):
    indices = torch.randint(0, 4, (3, 40), generator=torch.Generator().manual_seed(0))
    values = torch.randn((40, 2)[: 1 + dense_dims], dtype=torch.float64)
    c = torch.sparse_coo_tensor(indices, values, (4, 4, 4, 2)[: 3 + dense_dims])
    got, want = c.to("tpu").coalesce(), c.coalesce()
    assert got.is_coalesced() and got._nnz() == want._nnz()
    exact(got.indices(), want.indices())
    same(got.values(), want.values())
    same(c.to("tpu").to_dense(), c.to_dense())


def test_dense_to_sparse():
    x = torch.randn(4, 5, 2).relu()
    for dims in (3, 2, 1):
        got, want = x.to("tpu").to_sparse(dims), x.to_sparse(dims)
        exact(got.indices(), want.indices())
        exact(got.values(), want.values())
    csr = x[..., 0].to("tpu").to_sparse_csr()
    want = x[..., 0].to_sparse_csr()
    exact(csr.crow_indices(), want.crow_indices())
    exact(csr.col_indices(), want.col_indices())
    exact(csr.values(), want.values())
    exact(csr.to_dense(), x[..., 0])
    exact(want.to("tpu").to_dense(), x[..., 0])


def test_arithmetic(coo):
    t, dense = coo.to("tpu"), torch.randn(3, 5)
    d = dense.to("tpu")
    same((t + t).to_dense(), (coo + coo).to_dense())
    same((t * 2).to_dense(), (coo * 2).to_dense())
    same((t / 2).to_dense(), (coo / 2).to_dense())
    same((-t).to_dense(), (-coo).to_dense())
    same(d + t, dense + coo)
    same(d.clone().add_(t, alpha=-0.5), dense.clone().add_(coo, alpha=-0.5))
    same((t * d).to_dense(), (coo * dense).to_dense())
    same(t.t().to_dense(), coo.t().to_dense())
    same(torch.sparse.sum(t), torch.sparse.sum(coo))


def test_products(coo):
    t, right = coo.to("tpu"), torch.randn(5, 2)
    r, base = right.to("tpu"), torch.randn(3, 2)
    same(t @ r, coo @ right)
    same(torch.sparse.mm(t, r), torch.sparse.mm(coo, right))
    same(
        torch.sparse.addmm(base.to("tpu"), t, r, beta=0.5),
        torch.sparse.addmm(base, coo, right, beta=0.5),
    )
    csr = coo.to_dense().to_sparse_csr()
    same(csr.to("tpu") @ r, csr @ right)


def csr_matrix():
    """With an empty row."""
    torch.manual_seed(0)
    dense = torch.randn(5, 4) * (torch.rand(5, 4) < 0.5)
    dense[2] = 0
    return dense.to_sparse_csr()


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reduced_products(reduce):
    grads = []
    for device in ("cpu", "tpu"):
        left = csr_matrix().to(device).requires_grad_()
        right = torch.randn(4, 3, generator=torch.Generator().manual_seed(1)).to(device)
        right.requires_grad_()
        out = torch.sparse.mm(left, right, reduce)
        out.pow(2).sum().backward()
        assert left.grad.layout is torch.sparse_csr
        grads.append([t.detach().cpu() for t in (out, left.grad.to_dense(), right.grad)])
    torch.testing.assert_close(grads[1], grads[0])


def test_reduced_product_with_ties():
    found = []
    for device in ("cpu", "tpu"):
        left = torch.ones(2, 3).to_sparse_csr().to(device).requires_grad_()
        right = torch.ones(3, 2, device=device)
        found.append(torch.ops.aten._sparse_mm_reduce_impl(left, right, "amax"))
    for got, want in zip(found[1], found[0], strict=True):
        same(got, want)


def test_sampled_products():
    csr, left, right = csr_matrix(), torch.randn(5, 6), torch.randn(6, 4)
    on = [t.to("tpu") for t in (csr, left, right)]
    got = torch.sparse.sampled_addmm(*on, beta=0.5, alpha=2.0)
    same(
        got.to_dense(), torch.sparse.sampled_addmm(csr, left, right, beta=0.5, alpha=2.0).to_dense()
    )
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.sparse.sampled_addmm(on[0], on[1], on[1])
    grads = []
    for inputs in ((csr, left, right), on):
        leaves = [t.detach().clone().requires_grad_() for t in inputs]
        out = torch.sparse.sampled_addmm(*leaves, beta=0.5, alpha=2.0)
        grads.append(torch.autograd.grad(out.to_dense().pow(2).sum(), leaves))
    for got, want in zip(grads[1], grads[0], strict=True):
        same(got.to_dense() if got.layout is torch.sparse_csr else got, want.to_dense())


def test_sums_of_csr():
    a = csr_matrix()
    b = torch.eye(5, 4).to_sparse_csr()
    got, want = torch.add(a.to("tpu"), b.to("tpu"), alpha=-2), torch.add(a, b, alpha=-2)
    assert got.layout is torch.sparse_csr
    exact(got.crow_indices(), want.crow_indices())
    exact(got.col_indices(), want.col_indices())
    same(got.values(), want.values())
    dense = torch.randn(5, 4)
    same(dense.to("tpu") + a.to("tpu"), dense + a)


def test_gradients_of_a_sparse_embedding():
    ids = torch.tensor([1, 3, 1, 0])
    results = []
    for device in ("cpu", "tpu"):
        torch.manual_seed(0)
        table = torch.nn.Embedding(6, 3, sparse=True).to(device)
        sgd = torch.optim.SGD(table.parameters(), lr=0.5)
        for _ in range(2):
            sgd.zero_grad()
            table(ids.to(device)).pow(2).sum().backward()
            assert table.weight.grad.is_sparse
            sgd.step()
        results.append(table.weight.detach().cpu())
    torch.testing.assert_close(*results)


def test_gradient_through_a_sparse_product(coo):
    grads = []
    for device in ("cpu", "tpu"):
        torch.manual_seed(0)
        w = torch.randn(5, 2).to(device).requires_grad_()
        torch.sparse.mm(coo.to(device), w).sum().backward()
        grads.append(w.grad.cpu())
    torch.testing.assert_close(*grads)


def test_what_is_missing_says_so_in_a_sentence(coo):
    with pytest.raises(
        NotImplementedError, match=r"aten::tanh: sparse tensors have no such kernel"
    ):
        torch.tanh(coo.to("tpu"))
    csr = coo.to_dense().to_sparse_csr().to("tpu")
    with pytest.raises(NotImplementedError, match="use .to_dense()"):
        torch.relu(csr)
    with pytest.raises(NotImplementedError, match="layout=torch.jagged"):
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="tpu") + 1
    with pytest.raises(NotImplementedError, match="quantized dtypes have no kernels"):
        torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8).to("tpu")


def test_jagged_rows_and_padded_ones():
    values, offsets = torch.randn(7, 3), torch.tensor([0, 2, 2, 5, 7])
    pad, unpad = (
        torch.ops.aten._jagged_to_padded_dense_forward,
        torch.ops.aten._padded_dense_to_jagged_forward,
    )
    v, o = values.to("tpu"), offsets.to("tpu")
    for length in (4, 3, 2):
        exact(pad(v, [o], [length], -1.0), pad(values, [offsets], [length], -1.0))
    dense = pad(values, [offsets], [3])
    for total in (7, None):
        exact(unpad(dense.to("tpu"), [o], total), unpad(dense, [offsets], total))


def test_nested_jagged_tensors():
    rows = [torch.randn(n, 4) for n in (2, 5, 1)]
    outs = []
    for device in ("cpu", "tpu"):
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 3).to(device)
        nt = torch.nested.nested_tensor([r.to(device) for r in rows], layout=torch.jagged)
        y = layer(nt).relu()
        padded = torch.nested.to_padded_tensor(y * 2, 0.0)
        padded.sum().backward()
        outs.append((padded.detach().cpu(), layer.weight.grad.cpu(), [t.cpu() for t in y.unbind()]))
    torch.testing.assert_close(outs[1], outs[0])


def test_assertions_on_the_device():
    good, bad = torch.tensor(1.0, device="tpu"), torch.tensor(0.0, device="tpu")
    torch._assert_async(good)
    torch.tpu.synchronize()
    torch._assert_async(bad, "the loss is zero")
    with pytest.raises(RuntimeError, match="the loss is zero"):
        torch.tpu.synchronize()
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        torch._assert_async(torch.ones(2, device="tpu"))
