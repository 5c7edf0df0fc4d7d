"""Kernels that PyTorch names after another device, called by name."""

import pytest
import torch
from helpers import same


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
