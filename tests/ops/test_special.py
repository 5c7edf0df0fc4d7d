"""Special functions that are loops: an element's value does not hang on its neighbours."""

import pytest
import torch
from helpers import same

NUMBERS = [0.0, 0.3, 1.0, 1.05, 1.1, 1.5, 2.0, 3.0, 7.0, 20.0, 100.0, 250.0]
BINARY = {
    "gammainc": (torch.special.gammainc, NUMBERS),
    "gammaincc": (torch.special.gammaincc, NUMBERS),
    "zeta": (torch.special.zeta, [x for x in NUMBERS if x > 1]),
    "gcd": (torch.gcd, [0, 1, 2, 6, 7, 35, 36, 1 << 20]),
    "chebyshev_polynomial_t": (torch.special.chebyshev_polynomial_t, [0.0, 0.3, 1.0, 2.0, 7.0]),
    "hermite_polynomial_h": (torch.special.hermite_polynomial_h, [0.0, 0.3, 1.0, 2.0, 7.0]),
    "laguerre_polynomial_l": (torch.special.laguerre_polynomial_l, [0.0, 0.3, 1.0, 2.0, 7.0]),
    "legendre_polynomial_p": (torch.special.legendre_polynomial_p, [0.0, 0.3, 1.0, 2.0, 7.0]),
}


@pytest.mark.parametrize("name", BINARY)
def test_alone_and_in_company(name):
    function, numbers = BINARY[name]
    dtype = torch.int64 if name == "gcd" else torch.float64
    pairs = torch.cartesian_prod(*[torch.tensor(numbers, dtype=dtype)] * 2)
    a, b = pairs.T.contiguous()
    want = function(a, b)
    on_a, on_b = a.to("tpu"), b.to("tpu")
    got = function(on_a, on_b)
    # The CPU's gammainc(100, 100) is right to 4e-10.
    same(got, want, rtol=1e-9, atol=1e-300)
    alone = [function(on_a[i : i + 1], on_b[i : i + 1]) for i in range(len(a))]
    same(torch.cat(alone), got.cpu(), rtol=1e-13, atol=1e-300)
    # All on the diagonal: for the incomplete gamma functions the border of two methods.
    diagonal = torch.tensor(numbers, dtype=dtype)
    on = diagonal.to("tpu")
    same(function(on, on), function(diagonal, diagonal), rtol=1e-9, atol=1e-300)
