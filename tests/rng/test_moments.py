"""Distributions: moments, ranges, shapes of the histogram, independence."""

import math

import pytest
import torch
import torch.nn.functional as F

N = 40_000

# name: (draw of N numbers on the device, mean, standard deviation, distribution function or None)
NORMAL = torch.distributions.Normal(0.0, 1.0)


def empty(dtype=torch.float32):
    return torch.empty(N, dtype=dtype, device="tpu")


def full(value):
    return torch.full((N,), value, device="tpu")


CASES = {
    "rand": (lambda: torch.rand(N, device="tpu"), 0.5, 12**-0.5, lambda x: x),
    "uniform_": (lambda: empty().uniform_(-3, 5), 1.0, 8 * 12**-0.5, lambda x: (x + 3) / 8),
    "randn": (lambda: torch.randn(N, device="tpu"), 0.0, 1.0, NORMAL.cdf),
    "normal_": (lambda: empty().normal_(2, 3), 2.0, 3.0, lambda x: NORMAL.cdf((x - 2) / 3)),
    "normal": (lambda: torch.normal(full(1.0), 0.5), 1.0, 0.5, lambda x: NORMAL.cdf((x - 1) * 2)),
    "exponential_": (lambda: empty().exponential_(2.0), 0.5, 0.5, lambda x: 1 - torch.exp(-2 * x)),
    "log_normal_": (
        lambda: empty().log_normal_(0.0, 0.25),
        math.exp(0.03125),
        math.sqrt((math.exp(0.0625) - 1) * math.exp(0.0625)),
        lambda x: NORMAL.cdf(x.log() / 0.25),
    ),
    "cauchy_": (
        lambda: empty().cauchy_(1.0, 2.0),
        None,
        None,
        lambda x: 0.5 + ((x - 1) / 2).atan() / math.pi,
    ),
    "geometric_": (lambda: empty().geometric_(0.3), 1 / 0.3, math.sqrt(0.7) / 0.3, None),
    "bernoulli": (lambda: torch.bernoulli(full(0.3)), 0.3, math.sqrt(0.21), None),
    "bernoulli_p": (lambda: empty().bernoulli_(0.8), 0.8, 0.4, None),
    "dropout": (lambda: F.dropout(full(1.0), 0.25), 1.0, math.sqrt(0.25 / 0.75), None),
    "randint": (lambda: torch.randint(-5, 6, (N,), device="tpu"), 0.0, math.sqrt(10), None),
    "random_": (lambda: empty(torch.int64).random_(0, 100), 49.5, math.sqrt((1e4 - 1) / 12), None),
    "poisson": (lambda: torch.poisson(full(4.0)), 4.0, 2.0, None),
    "multinomial": (
        lambda: torch.multinomial(torch.tensor([0.2, 0.0, 0.8], device="tpu"), N, replacement=True),
        1.6,
        0.8,
        None,
    ),
    "rand_like": (lambda: torch.rand_like(empty()), 0.5, 12**-0.5, lambda x: x),
    "randn_like": (lambda: torch.randn_like(empty()), 0.0, 1.0, NORMAL.cdf),
}


@pytest.mark.parametrize("name", CASES)
def test_moments_and_shape(name):
    draw, mean, deviation, cdf = CASES[name]
    torch.manual_seed(5)
    x = draw().cpu().double()
    if mean is not None:
        assert abs(x.mean() - mean) < 5 * deviation / math.sqrt(N), x.mean()
        assert x.std().item() == pytest.approx(deviation, rel=0.05)
    if cdf is not None:
        # Kolmogorov and Smirnov: the largest distance is below this but once in 1e6 seeds.
        u = cdf(x.sort().values)
        k = torch.arange(1, N + 1) / N
        assert (u - k).abs().max() < 2.7 / math.sqrt(N)
    # Neighbours and halves are uncorrelated.
    if mean is not None:
        z = (x - x.mean()) / x.std()
        for lag in (1, 2, 4, N // 2):
            assert abs((z[lag:] * z[:-lag]).mean()) < 5 / math.sqrt(N - lag), lag


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_uniform_never_reaches_its_end(dtype):
    x = torch.rand(200_000, dtype=dtype, device="tpu").cpu()
    assert x.dtype == dtype and x.min() >= 0 and x.max() < 1
    assert x.double().mean().item() == pytest.approx(0.5, abs=0.01)
    y = torch.empty(50_000, dtype=dtype, device="tpu").uniform_(2, 4).cpu()
    assert y.min() >= 2 and y.max() <= 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_normal_is_finite_in_every_type(dtype):
    x = torch.randn(100_000, dtype=dtype, device="tpu").cpu()
    assert x.dtype == dtype and x.isfinite().all()
    assert x.double().std().item() == pytest.approx(1, abs=0.02)
    assert 3.5 < x.double().abs().max() < 7


def test_complex_normal():
    x = torch.randn(N, dtype=torch.complex64, device="tpu").cpu()
    assert x.real.std().item() == pytest.approx(0.5**0.5, rel=0.03)
    assert x.imag.std().item() == pytest.approx(0.5**0.5, rel=0.03)
    assert abs((x.real * x.imag).mean()) < 0.02


@pytest.mark.parametrize(
    "dtype, low, high",
    [
        (torch.uint8, 0, 255),
        (torch.int8, 0, 127),
        (torch.int16, 0, 2**15 - 1),
        (torch.int32, 0, 2**31 - 1),
        (torch.int64, 0, 2**63 - 1),
        (torch.bool, 0, 1),
        (torch.float32, 0, 2**24),
        (torch.bfloat16, 0, 2**8),
    ],
)
def test_random_fills_the_range_of_the_type(dtype, low, high):
    x = empty(dtype).random_().cpu().double()
    assert x.min() >= low and x.max() <= high
    assert x.mean().item() == pytest.approx((low + high) / 2, rel=0.03)


def test_random_of_a_range():
    x = empty(torch.int64).random_(-(2**40), 2**40).cpu().double()
    assert x.min() < -(2**39) and x.max() > 2**39 and abs(x.mean()) < 2**40 * 0.02
    y = empty(torch.int32).random_(7).cpu()
    assert y.unique().tolist() == list(range(7))
    counts = torch.bincount(y.long()).double()
    assert ((counts - N / 7).abs() < 6 * math.sqrt(N / 7)).all()


def test_randperm_is_a_permutation_without_bias():
    first = []
    for _ in range(60):
        p = torch.randperm(20, device="tpu").cpu()
        assert p.sort().values.tolist() == list(range(20))
        first.append(p[0].item())
    assert len(set(first)) > 12
    big = torch.randperm(5000, device="tpu").cpu().double()
    at = torch.arange(5000, dtype=torch.float64)
    assert abs(torch.corrcoef(torch.stack([big, at]))[0, 1]) < 0.07


def test_multinomial_without_replacement_draws_each_once():
    w = torch.rand(50, 12).to("tpu")
    x = torch.multinomial(w, 12).cpu()
    assert (x.sort(1).values == torch.arange(12)).all()


def test_draws_are_independent_of_each_other():
    torch.manual_seed(3)
    rows = torch.stack([torch.randn(4000, device="tpu") for _ in range(12)]).cpu()
    c = torch.corrcoef(rows) - torch.eye(12)
    assert c.abs().max() < 5 / math.sqrt(4000)
    other = []
    for seed in range(12):
        torch.manual_seed(seed)
        other.append(torch.randn(4000, device="tpu"))
    c = torch.corrcoef(torch.stack(other).cpu()) - torch.eye(12)
    assert c.abs().max() < 5 / math.sqrt(4000)


def test_dropout_masks_gradient_as_value(mode):
    x = torch.ones(1000).to("tpu").requires_grad_()
    y = F.dropout(x, 0.4)
    y.sum().backward()
    assert torch.equal(y.detach().cpu(), x.grad.cpu())
    kept = (y != 0).float().mean().item()
    assert kept == pytest.approx(0.6, abs=0.06)
    assert torch.allclose(y[y != 0].detach().cpu(), torch.tensor(1 / 0.6))
    assert torch.equal(F.dropout(x, 0.0).detach().cpu(), torch.ones(1000))
    assert torch.equal(F.dropout(x, 1.0).detach().cpu(), torch.zeros(1000))
    assert F.dropout(x, 0.5, training=False) is x


@pytest.mark.parametrize(
    "kind", ["alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d"]
)
def test_other_dropouts(kind):
    x = (
        torch.ones(40, 30, 4, 4).to("tpu")
        if kind == "dropout2d"
        else torch.ones(40, 30, 8).to("tpu")
    )
    y = getattr(F, kind)(x, 0.5, training=True).cpu()
    if kind.startswith("dropout"):
        flat = y.flatten(2)
        assert ((flat == 0).all(-1) | (flat == 2).all(-1)).all()
    assert 0.3 < (y == y.max()).float().mean() < 0.7
