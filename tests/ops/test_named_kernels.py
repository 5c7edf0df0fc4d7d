"""Kernels that PyTorch names after another device, or has for the CPU's tensors only."""

import pytest
import torch
from helpers import same

from torch_tpu import debug


def test_attention_by_its_cudnn_name():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 8) for n in (5, 7, 7))
    leaves = [t.requires_grad_() for t in (q, k, v)]
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    grads = torch.autograd.grad(want.pow(2).sum(), leaves)
    on = [t.detach().to("tpu").requires_grad_() for t in leaves]
    got = torch.ops.aten._scaled_dot_product_cudnn_attention(*on, None, True, 0.0, True)[0]
    same(got, want, rtol=1e-4, atol=1e-5)
    for g, w in zip(torch.autograd.grad(got.pow(2).sum(), on), grads, strict=True):
        same(g, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["rows", "batches"])
def test_scaled_grouped_mm(form):
    torch.manual_seed(0)
    a = torch.randn((9, 4) if form == "rows" else (3, 6, 4)).to(torch.float8_e4m3fn)
    b = torch.randn(3, 4, 5).to(torch.float8_e4m3fn)
    scale_a, scale_b = torch.rand(a.shape[:-1]) + 0.5, torch.rand(3, 5) + 0.5
    offsets = torch.tensor([2, 2, 9], dtype=torch.int32) if form == "rows" else None
    wide_a, wide_b = a.float() * scale_a[..., None], b.float() * scale_b[:, None, :]
    if form == "rows":
        want = torch.cat(
            [wide_a[s:e] @ wide_b[g] for g, (s, e) in enumerate([(0, 2), (2, 2), (2, 9)])]
        )
    else:
        want = wide_a @ wide_b
    got = torch.ops.aten._scaled_grouped_mm(
        *(t.to("tpu") for t in (a, b, scale_a, scale_b)),
        offsets.to("tpu") if form == "rows" else None,
        out_dtype=torch.bfloat16,
    )
    same(got, want.bfloat16(), rtol=2e-2, atol=2e-2)


def test_tensor_split_reads_its_places_from_the_device():
    x = torch.arange(12.0).reshape(6, 2)
    t = x.to("tpu").requires_grad_()
    for places in (torch.tensor([1, 4]), torch.tensor(4), torch.tensor([], dtype=torch.int64)):
        want = torch.tensor_split(x, places)
        for got in (torch.tensor_split(t, places.to("tpu")), torch.tensor_split(t, places)):
            assert len(got) == len(want) and all(g._is_view() for g in got)
            for g, w in zip(got, want, strict=True):
                same(g, w)
    torch.tensor_split(t, torch.tensor([2], device="tpu"))[1].sum().backward()
    assert t.grad.sum() == 8
    with pytest.raises(RuntimeError, match="zero-dimensional or one-dimensional"):
        torch.tensor_split(t, torch.ones(1, 1, dtype=torch.int64, device="tpu"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.complex64, torch.int8])
def test_isfinite_is_one_op(dtype):
    numbers = torch.tensor([0, -1, float("inf"), float("-inf"), float("nan"), 3e38])
    x = torch.complex(*torch.cartesian_prod(numbers, numbers).T) if dtype.is_complex else numbers
    x = torch.tensor([-1, 0, 5]).to(dtype) if dtype == torch.int8 else x.to(dtype)
    on = x.to("tpu")
    torch.tpu.synchronize()
    debug.reset()
    got = torch.isfinite(on)
    assert debug.counters()["executes"] == 1
    assert got.tolist() == torch.isfinite(x).tolist()


def test_parts_of_jagged_tensors():
    values, offsets = torch.randn(6, 3), torch.tensor([0, 2, 6])
    nested = torch.nested.nested_tensor_from_jagged(values.to("tpu"), offsets.to("tpu"))
    same(torch._nested_get_values(nested), values)
    same(torch._nested_get_offsets(nested), offsets)
    assert torch._nested_get_lengths(nested) is None
    assert torch._nested_get_ragged_idx(nested) == 1
    dummy = torch._nested_get_jagged_dummy(nested)
    again = torch._nested_view_from_jagged(values.to("tpu"), offsets.to("tpu"), dummy)
    same(again.values(), values)
    padded = nested.to_padded_tensor(0.0)
    back = torch._nested_from_padded_tensor(padded, offsets.to("tpu"), dummy, sum_S=6)
    same(back.values(), values)
