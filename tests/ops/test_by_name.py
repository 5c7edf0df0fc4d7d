"""Ops that PyTorch's databases do not reach, called by name, against the CPU.

Together with them every declared op runs: `python tools/op_hits.py` (docs/conformance.md).
"""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers import copied, same
from torch.utils import _pytree as pytree

from torch_tpu import debug

aten = torch.ops.aten
F32, I64, U8 = torch.float32, torch.int64, torch.uint8


def r(*sizes, seed=0):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed + sum(sizes)))


def whole(*values, dtype=I64):
    return torch.tensor(values, dtype=dtype)


def few(*sizes, count=3):
    return [r(*sizes, seed=n) for n in range(count)]


def observer():
    return (whole(1), whole(1), torch.tensor([-1.0]), torch.tensor([1.0]), torch.tensor([0.1]),
            whole(0, dtype=torch.int32), 0.1, 0, 255, 0)  # fmt: skip


def adam(count=2):
    lists = [few(4, 3, count=count) for _ in range(3)]
    squares = [x.abs() for x in few(4, 3, count=count)]
    return [*lists, squares, [], [torch.tensor(2.0) for _ in range(count)]]


ADAM = {
    "lr": torch.tensor(1e-3), "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8,
    "amsgrad": False, "maximize": False,
}  # fmt: skip
LOG_PROBS, TARGETS = r(6, 2, 5).log_softmax(-1), torch.tensor([[1, 2, 2], [3, 4, 1]])
LENGTHS = (whole(6, 5), whole(3, 2))
LOSS = aten._ctc_loss.Tensor(LOG_PROBS, TARGETS, *LENGTHS)
MASK = torch.tensor([[True, False, False], [False, False, True]])
SCALES, ZEROS = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.0, 1.0, 2.0])
NORMS = aten._weight_norm_interface(r(4, 3), r(4, 1).abs(), 0)[1]
SAMPLES = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(0))
POOLED = aten.fractional_max_pool2d(r(2, 3, 6, 6), [2, 2], [3, 3], SAMPLES)
SAMPLES3 = torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(0))
POOLED3 = aten.fractional_max_pool3d(r(2, 3, 6, 6, 6), [2, 2, 2], [3, 3, 3], SAMPLES3)
E8 = torch.float8_e4m3fn

CASES = {
    "__ilshift__.Scalar": lambda: [whole(1, 2, 3), 2],
    "__ilshift__.Tensor": lambda: [whole(1, 2, 3), whole(0, 1, 2)],
    "__irshift__.Scalar": lambda: [whole(9, -8, 3), 1],
    "__irshift__.Tensor": lambda: [whole(9, -8, 3), whole(0, 1, 2)],
    "__lshift__.Scalar": lambda: [whole(1, -2, 3), 2],
    "__lshift__.Tensor": lambda: [whole(1, 2, 3), whole(0, 1, 2)],
    "__rshift__.Scalar": lambda: [whole(9, -8, 3), 2],
    "__rshift__.Tensor": lambda: [whole(9, -8, 3), whole(0, 1, 2)],
    "_add_relu.Scalar": lambda: [r(4), 0.5, 2],
    "_add_relu.Tensor": lambda: [r(4), r(4, seed=1)],
    "_addmm_activation": lambda: [r(3), r(2, 4), r(4, 3)],
    "_aminmax": lambda: [r(4, 3)],
    "_aminmax.dim": lambda: [r(4, 3), 1, True],
    "_batch_norm_with_update_functional": lambda: [r(4, 3, 2), r(3), r(3), r(3), r(3).abs(), 0.1,
                                                   1e-5],
    "_compute_linear_combination": lambda: [r(3, 5), r(4, 3)],
    "_ctc_loss.Tensor": lambda: [LOG_PROBS, TARGETS, *LENGTHS],
    "_ctc_loss_backward.Tensor": lambda: [r(2), LOG_PROBS, TARGETS, *LENGTHS, *LOSS, 0],
    "_cummax_helper": lambda: [r(4, 3), torch.empty(4, 3), torch.empty(4, 3, dtype=I64), 0],
    "_cummin_helper": lambda: [r(4, 3), torch.empty(4, 3), torch.empty(4, 3, dtype=I64), 1],
    "_dirichlet_grad": lambda: [torch.tensor([[0.2, 0.8]]), torch.tensor([[1.5, 2.0]]),
                                torch.tensor([[3.5, 3.5]])],
    "_embedding_bag_dense_backward": lambda: [
        r(2, 3), whole(1, 2, 4, 5, 4), whole(0, 0, 1, 1, 1), whole(2, 3), whole(), 7, False, 0,
        None],
    "_fake_quantize_learnable_per_channel_affine": lambda: [r(3, 4), SCALES, ZEROS, 0, -8, 7],
    "_fake_quantize_learnable_per_channel_affine_backward": lambda: [
        r(3, 4), r(3, 4, seed=1), SCALES, ZEROS, 0, -8, 7],
    "_fake_quantize_learnable_per_tensor_affine": lambda: [r(3, 4), SCALES[:1], ZEROS[:1], -8, 7],
    "_fake_quantize_learnable_per_tensor_affine_backward": lambda: [
        r(3, 4), r(3, 4, seed=1), SCALES[:1], ZEROS[:1], -8, 7],
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": lambda: [
        r(3, 4), SCALES[0], whole(1, dtype=torch.int32)[0], whole(1), -8, 7],
    "_foreach_add.Tensor": lambda: [few(3), torch.tensor(2.0)],
    "_foreach_addcdiv.Tensor": lambda: [few(3), few(3, count=3), [x.exp() for x in few(3)], r(3)],
    "_foreach_addcmul.Tensor": lambda: [few(3), few(3, count=3), few(3), r(3)],
    "_foreach_clamp_max.List": lambda: [few(3), few(3, count=3)[::-1]],
    "_foreach_clamp_max.Scalar": lambda: [few(3), 0.1],
    "_foreach_clamp_max.ScalarList": lambda: [few(3), [0.1, 0.2, -0.3]],
    "_foreach_clamp_min.List": lambda: [few(3), few(3, count=3)[::-1]],
    "_foreach_clamp_min.ScalarList": lambda: [few(3), [0.1, 0.2, -0.3]],
    "_foreach_clone": lambda: [few(3)],
    "_foreach_maximum.Scalar": lambda: [few(3), 0.1],
    "_foreach_minimum.Scalar": lambda: [few(3), 0.1],
    "_foreach_pow.ScalarAndTensor": lambda: [2.0, few(3)],
    "_foreach_powsum.Scalar": lambda: [few(3), 3],
    "_foreach_sub.Scalar": lambda: [few(3), 0.1],
    "_fused_adam_.tensor_lr": adam,
    "_fused_adamw_.tensor_lr": adam,
    "_fused_moving_avg_obs_fq_helper": lambda: [r(3, 4), *observer()],
    "_fused_moving_avg_obs_fq_helper_functional": lambda: [r(3, 4), *observer()],
    "_int_mm": lambda: [torch.arange(32 * 8).reshape(32, 8).to(torch.int8),
                        torch.arange(8 * 8).reshape(8, 8).to(torch.int8)],
    "_linalg_det": lambda: [r(2, 3, 3)],
    "_linalg_slogdet": lambda: [r(2, 3, 3)],
    "_logcumsumexp": lambda: [r(4, 3), 0],
    "_masked_softmax": lambda: [r(2, 3), MASK, 1, 2],
    "_masked_softmax_backward": lambda: [r(2, 3), r(2, 3).softmax(1), MASK, 1],
    "_slow_conv2d_backward.output_mask": lambda: [r(2, 4, 5, 5), r(2, 3, 5, 5), r(4, 3, 3, 3),
                                                  [3, 3], [1, 1], [1, 1], [True] * 3],
    "_slow_conv2d_forward": lambda: [r(2, 3, 5, 5), r(4, 3, 3, 3), [3, 3], r(4), [1, 1], [1, 1]],
    "_stack": lambda: [few(3), 1],
    "_standard_gamma_grad": lambda: [r(5).exp(), r(5, seed=1).exp()],
    "_transform_bias_rescale_qkv": lambda: [r(2, 3, 12), r(12), 2],
    "_upsample_bicubic2d_aa": lambda: [r(2, 3, 8, 9), [4, 5], False],
    "_upsample_bicubic2d_aa_backward": lambda: [r(2, 3, 4, 5), [4, 5], [2, 3, 8, 9], False],
    "_upsample_lanczos2d_aa": lambda: [r(2, 3, 8, 9), [4, 5], False],
    "_upsample_lanczos2d_aa_backward": lambda: [r(2, 3, 4, 5), [4, 5], [2, 3, 8, 9], False],
    "_weight_int8pack_mm": lambda: [r(4, 32).bfloat16(),
                                    (r(8, 32) * 20).to(torch.int8), r(8).bfloat16()],
    "_weight_norm_interface": lambda: [r(4, 3), r(4, 1), 0],
    "_weight_norm_interface_backward": lambda: [r(4, 3), r(4, 3, seed=1), r(4, 1), NORMS, 0],
    "adaptive_avg_pool2d.out": lambda: [r(2, 3, 6, 7), [3, 2]],
    "adaptive_avg_pool3d.out": lambda: [r(2, 3, 6, 7, 5), [3, 2, 2]],
    "adaptive_avg_pool3d_backward.grad_input": lambda: [r(2, 3, 3, 2, 2), r(2, 3, 6, 7, 5)],
    "bucketize.Scalar": lambda: [0.3, torch.tensor([0.0, 0.2, 0.5])],
    "clamp_max.Tensor": lambda: [r(4, 3), r(3)],
    "conj_physical.out": lambda: [torch.complex(r(3), r(3, seed=1))],
    "conj_physical_": lambda: [torch.complex(r(3), r(3, seed=1))],
    "conv_tbc": lambda: [r(5, 2, 3), r(3, 3, 4), r(4), 1],
    "fake_quantize_per_channel_affine_cachemask": lambda: [
        r(3, 4), SCALES, whole(0, 1, 2, dtype=torch.int32), 0, -8, 7],
    "fake_quantize_per_tensor_affine_cachemask": lambda: [r(3, 4), 0.1, 1, -8, 7],
    "fractional_max_pool2d_backward": lambda: [r(2, 3, 3, 3), r(2, 3, 6, 6), [2, 2], [3, 3],
                                               POOLED[1]],
    "fractional_max_pool3d_backward": lambda: [r(2, 3, 3, 3, 3), r(2, 3, 6, 6, 6), [2] * 3, [3] * 3,
                                               POOLED3[1]],
    "glu_backward_jvp": lambda: [
        aten.glu_backward(r(2, 3), r(2, 6, seed=1), 1), r(2, 3), r(2, 6, seed=1), r(2, 3, seed=1),
        r(2, 6, seed=2), 1],
    "glu_jvp": lambda: [F.glu(r(2, 6), 1), r(2, 6), r(2, 6, seed=1), 1],
    "index_put": lambda: [r(4, 3), [whole(0, 2)], r(2, 3)],
    "isin.Scalar_Tensor": lambda: [2, whole(1, 2, 3)],
    "linalg__powsum": lambda: [r(4, 3), 3, [1], True],
    "logspace.Tensor_Scalar": lambda: [torch.tensor(0.5), 2.0, 5],
    "norm.ScalarOpt_dim_dtype": lambda: [r(4, 3), 3, [1], True],
    "slow_conv3d_forward": lambda: [r(2, 3, 4, 5, 5), r(4, 3, 3, 3, 3), [3] * 3, r(4), [1] * 3,
                                    [1] * 3],
    "slow_conv_dilated2d": lambda: [r(2, 3, 7, 7), r(4, 3, 3, 3), [3, 3], r(4), [1, 1], [1, 1],
                                    [2, 2]],
    "slow_conv_dilated3d": lambda: [r(2, 3, 6, 7, 7), r(4, 3, 3, 3, 3), [3] * 3, r(4), [1] * 3,
                                    [1] * 3, [2] * 3],
    "slow_conv_transpose2d": lambda: [r(2, 3, 4, 4), r(3, 4, 3, 3), [3, 3], r(4), [2, 2], [1, 1],
                                      [1, 1]],
    "slow_conv_transpose3d": lambda: [r(2, 3, 3, 4, 4), r(3, 4, 3, 3, 3), [3] * 3, r(4), [2] * 3,
                                      [1] * 3, [1] * 3],
}  # fmt: skip
NAMED = {
    "_fused_adam_.tensor_lr": ADAM,
    "_fused_adamw_.tensor_lr": ADAM,
    "adaptive_avg_pool2d.out": {"out": torch.empty(2, 3, 3, 2)},
    "adaptive_avg_pool3d.out": {"out": torch.empty(2, 3, 3, 2, 2)},
    "adaptive_avg_pool3d_backward.grad_input": {"grad_input": torch.empty(2, 3, 6, 7, 5)},
    "conj_physical.out": {"out": torch.empty(3, dtype=torch.complex64)},
    "norm.ScalarOpt_dim_dtype": {"dtype": torch.float64},
}
# Results that only the CPU's kernel has in this form: how many of them count.
COMPARED = {
    "_ctc_loss.Tensor": 1,
    "_linalg_det": 1,
    "_linalg_slogdet": 2,
    "_batch_norm_with_update_functional": 3,
}


def overload(name):
    base, _, rest = name.partition(".")
    return getattr(getattr(aten, base), rest or "default")


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    op, args, named = overload(name), CASES[name](), NAMED.get(name, {})
    here, there = copied((args, named)), copied((args, named), "tpu")
    want, got = op(*here[0], **here[1]), op(*there[0], **there[1])
    if name in COMPARED:
        want, got = want[: COMPARED[name]], got[: COMPARED[name]]
    wide = {"_weight_int8pack_mm": 2e-2, "_standard_gamma_grad": 2e-4}.get(name, 2e-5)
    # What it wrote, too.
    for g, w in zip(
        pytree.tree_leaves((got, there)), pytree.tree_leaves((want, here)), strict=True
    ):
        if isinstance(w, torch.Tensor):
            same(g, w, rtol=wide, atol=wide)
        else:
            assert g == w


def test_factories():
    on = {"device": "tpu"}
    same(aten.eye.out(3, out=torch.empty(3, 3, **on)), torch.eye(3))
    same(aten.range.out(1, 2, 0.5, out=torch.empty(3, **on)), torch.tensor([1, 1.5, 2]))
    whole_range = aten.range.out(5, -6, -2, out=torch.empty(0, dtype=I64, **on))
    same(whole_range, torch.arange(5, -7, -2))
    same(torch.triu_indices(3, 4, 1, **on), torch.triu_indices(3, 4, 1))
    same(torch.empty(3, **on).fill_(2), torch.full((3,), 2.0))
    assert aten._make_dep_token(**on).shape == ()


@pytest.mark.parametrize("dtype", [F32, torch.float64, I64, torch.int8, torch.bfloat16, None])
def test_arange(dtype):
    for ends in ((5,), (1, 9, 2), (5, -6, -2), (0.5, 3.2, 0.25), (3, 3), (2**40, 2**40 + 3)):
        if (dtype == torch.int8 and ends[-1] > 100) or (dtype == I64 and ends[-1] == 0.25):
            continue
        same(torch.arange(*ends, dtype=dtype, device="tpu"), torch.arange(*ends, dtype=dtype))
    for bad in ((0, 1, 0), (0, 1, -1), (0, float("nan")), (float("inf"), 1)):
        for device in ("cpu", "tpu"):
            with pytest.raises(RuntimeError):
                torch.arange(*bad, dtype=dtype, device=device)
    rows = torch.empty(2, 3, device="tpu")
    assert torch.arange(6, out=rows) is rows and rows.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(NotImplementedError):
        torch.arange(3, dtype=torch.bool, device="tpu")


@pytest.mark.parametrize("dtype", [I64, torch.int16, F32, torch.bfloat16])
def test_logspace(dtype):
    for ends in ((4.3, -3, 4, 1.1), (0, 3, 4, 2.5), (8.6, 0, 1, 2.0), (-1.2, 3.7, 6), (2, 5, 0)):
        want = torch.logspace(*ends, dtype=dtype)
        same(torch.logspace(*ends, dtype=dtype, device="tpu"), want)
        if len(ends) == 4:
            start = torch.tensor(ends[0], device="tpu")
            same(torch.logspace(start, *ends[1:], dtype=dtype, device="tpu"), want)


def test_a_sequence_compiles_once():
    torch.arange(10, 13, device="tpu")
    torch.arange(0.5, 3.5, device="tpu")
    torch.tpu.synchronize()
    debug.reset()
    for k in range(20, 26):
        torch.arange(k, k + 3, device="tpu")
        torch.arange(k / 4, k / 4 + 3, device="tpu")
    torch.tpu.synchronize()
    counts = debug.counters()
    assert counts["compiles"] + counts["disk_hits"] == 0


def test_out_forms_of_ops_with_a_kernel_of_their_own():
    x, at, v = r(4, 3), whole(0, 2), r(2, 3, seed=1)
    out = torch.empty(0, device="tpu")
    same(aten.index_put.out(x.to("tpu"), [at.to("tpu")], v.to("tpu"), out=out),
         aten.index_put(x, [at], v))  # fmt: skip
    a = r(3, 3)
    given = [torch.empty(0, device="tpu") for _ in range(3)]
    pivots = torch.empty(0, device="tpu", dtype=torch.int32)
    det = aten._linalg_det.result(a.to("tpu"), result=given[0], LU=given[1], pivots=pivots)
    same(det[0], torch.linalg.det(a), rtol=1e-4, atol=1e-4)
    found = aten._linalg_slogdet.sign(
        a.to("tpu"), sign=given[0], logabsdet=given[1], LU=given[2], pivots=pivots
    )
    same(found[1], torch.linalg.slogdet(a)[1], rtol=1e-4, atol=1e-4)


def test_asserts():
    yes, token = torch.ones(1, device="tpu"), aten._make_dep_token(device="tpu")
    aten._assert_async(yes)
    aten._functional_assert_async.msg(yes, "never", token)
    torch.tpu.synchronize()
    for check in (aten._assert_async, lambda x: aten._functional_assert_async.msg(x, "a", token)):
        with pytest.raises(RuntimeError):
            check(yes - 1)
            torch.tpu.synchronize()


@pytest.mark.parametrize("spatial", [2, 3])
def test_depthwise_convolutions(spatial):
    x, w, b = r(2, 4, *[5] * spatial), r(8, 1, *[3] * spatial), r(8)
    op = aten._conv_depthwise2d if spatial == 2 else aten.conv_depthwise3d
    sizes = ([3] * spatial, b.to("tpu"), [2] * spatial, [1] * spatial, [1] * spatial)
    convolution = F.conv2d if spatial == 2 else F.conv3d
    want = convolution(x, w, b, stride=2, padding=1, groups=4)
    same(op(x.to("tpu"), w.to("tpu"), *sizes), want, rtol=1e-4, atol=1e-4)


def test_products_of_a_wider_dtype():
    a, b = r(3, 4, 5).half(), r(3, 5, 6).half()
    on_a, on_b = a.to("tpu"), b.to("tpu")
    want = a.float() @ b.float()
    close = {"rtol": 1e-4, "atol": 1e-4}
    same(aten.bmm.dtype(on_a, on_b, F32), want, **close)
    same(aten.mm.dtype(on_a[0], on_b[0], F32), want[0], **close)
    c = r(4, 6).half()
    same(aten.addmm.dtype(c.to("tpu").float(), on_a[0], on_b[0], F32), c.float() + want[0], **close)
    wide = aten.baddbmm.dtype(c.to("tpu").float().expand(3, 4, 6), on_a, on_b, F32)
    same(wide, c.float() + want, **close)


def test_scaled_products():
    a, b = r(16, 32).to(E8), r(16, 32, seed=1).to(E8).t()
    scales = torch.tensor(0.5), torch.tensor(0.25)
    want = (a.float() @ b.float()) * 0.125
    on = [t.to("tpu") for t in (a, b, *scales)]
    same(aten._scaled_mm(*on, out_dtype=F32), want, rtol=1e-4, atol=1e-4)
    two = aten._scaled_mm_v2(*on[:2], [on[2]], [0], [0], [on[3]], [0], [0], None, F32)
    same(two, want, rtol=1e-4, atol=1e-4)


def test_int4_products():
    weight = torch.arange(8 * 32).reshape(8, 32) % 16
    pairs = (weight[:, ::2] * 16 + weight[:, 1::2]).to(U8)
    packed = aten._convert_weight_to_int4pack(pairs.to("tpu"), 2)
    scales = torch.stack([torch.full((1, 8), 0.5), torch.full((1, 8), 2.0)], -1).bfloat16()
    x = r(4, 32).bfloat16()
    got = aten._weight_int4pack_mm(x.to("tpu"), packed, 32, scales.to("tpu"))
    want = x.float() @ ((weight - 8) * 0.5 + 2.0).float().t()
    same(got.float(), want, rtol=3e-2, atol=0.3)


def test_pieces_of_a_batch_norm_over_devices():
    x, weight, bias, grad = r(6, 3, 4), r(3), r(3, seed=1), r(6, 3, 4, seed=1)
    leaf, scale, shift = (t.clone().requires_grad_() for t in (x, weight, bias))
    mean_was, var_was = r(3), r(3).abs()
    running = [mean_was.clone(), var_was.clone()]
    want = F.batch_norm(leaf, *running, scale, shift, True, 0.1, 1e-5)
    want.backward(grad)
    on = [t.to("tpu") for t in (x, weight, bias, grad)]
    close = {"rtol": 1e-4, "atol": 1e-4}
    mean, invstd = aten.batch_norm_stats(on[0], 1e-5)
    for form in ("counts", "count"):
        moved = [mean_was.to("tpu"), var_was.to("tpu")]
        if form == "counts":
            counts = torch.tensor([24.0], device="tpu")
            pair = aten.batch_norm_gather_stats_with_counts(
                on[0], mean[None], invstd[None], *moved, 0.1, 1e-5, counts
            )
        else:
            pair = aten.batch_norm_gather_stats(
                on[0], mean[None], invstd[None], *moved, 0.1, 1e-5, 24
            )
        same(pair[0], x.mean((0, 2)), **close)
        for m, w in zip(moved, running, strict=True):
            same(m, w, **close)
    same(aten.batch_norm_elemt(on[0], on[1], on[2], mean, invstd, 1e-5), want, **close)
    sums = aten.batch_norm_backward_reduce(on[3], on[0], mean, invstd, on[1], True, True, True)
    same(sums[2], scale.grad, **close)
    same(sums[3], shift.grad, **close)
    count = torch.tensor([24], dtype=torch.int32, device="tpu")
    back = aten.batch_norm_backward_elemt(on[3], on[0], mean, invstd, on[1], *sums[:2], count)
    same(back, leaf.grad, **close)
    moved = [mean_was.to("tpu"), var_was.to("tpu")]
    mean, var = aten.batch_norm_update_stats(on[0], *moved, 0.1)
    same(var, x.var((0, 2), unbiased=False), **close)
    same(moved[1], running[1], **close)


def test_moments_of_draws():
    torch.manual_seed(0)
    n, on = 20_000, {"device": "tpu"}
    alpha = torch.tensor([0.5, 2.0, 7.0], **on)
    draws = {
        "gamma": (aten._standard_gamma(alpha.expand(n, 3)), alpha, alpha),
        "dirichlet": (aten._sample_dirichlet(alpha.expand(n, 3)), alpha / alpha.sum(), None),
        "binomial": (aten.binomial(torch.full((n, 3), 9.0, **on), torch.full((n, 3), 0.3, **on)),
                     torch.full((3,), 2.7, **on), torch.full((3,), 1.89, **on)),
        "bernoulli": (aten.bernoulli.Tensor(torch.empty(n, 3, **on), torch.full((n, 3), 0.3, **on)),
                      torch.full((3,), 0.3, **on), torch.full((3,), 0.21, **on)),
        "normal": (aten.normal.float_Tensor(1.0, alpha.expand(n, 3)), torch.ones(3, **on),
                   alpha**2),
        "normal, functional": (aten.normal_functional(torch.empty(n, 3, **on), 1.0, 2.0),
                               torch.ones(3, **on), torch.full((3,), 4.0, **on)),
    }  # fmt: skip
    for name, (x, mean, var) in draws.items():
        found = x.var(0)
        if var is not None:
            assert torch.allclose(found.cpu(), var.cpu(), rtol=0.1), name
        error = (x.mean(0) - mean).abs() / (found / n).sqrt()
        assert error.max().item() < 5, name
    noise = torch.empty(n, **on)
    x = aten.rrelu_with_noise_(-torch.ones(n, **on), noise, 0.1, 0.3, True)
    assert x.min().item() >= -0.3 and x.max().item() <= -0.1
    assert math.isclose(x.mean().item(), -0.2, abs_tol=0.005)
