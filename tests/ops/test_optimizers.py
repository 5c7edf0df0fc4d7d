"""PyTorch's optimizer database on tpu against CPU: parameters and state after three steps.

Every input of every optimizer, in the implementations that take the device: for-loop, foreach and
fused.
"""

import pytest
import torch
from ops.expectations import OTHER_OPTIMIZERS
from torch.testing._internal.common_optimizers import optim_db

CASES = [
    (info, flag)
    for info in optim_db
    for flag in ("forloop", *(f for f in ("foreach", "fused") if f in info.supported_impls))
]


def train(info, given, flag, device):
    """Parameters and state after three steps, on the CPU."""
    torch.manual_seed(0)
    sparse = info.only_supports_sparse_grads
    shapes = [(4, 3), (3,)] if info.optim_cls.__name__ != "Muon" else [(4, 3), (3, 5)]
    parameters = [torch.nn.Parameter(torch.randn(s).to(device)) for s in shapes]
    kwargs = dict(given.kwargs)
    for name, value in kwargs.items():
        if isinstance(value, torch.Tensor):
            kwargs[name] = value.to(device)
    if flag != "forloop":
        kwargs[flag] = True
    elif "foreach" in info.supported_impls:
        kwargs["foreach"] = False
    optimizer = info.optim_cls(parameters, **kwargs)
    for step in range(3):
        torch.manual_seed(step)
        for p in parameters:
            grad = torch.randn(p.shape).to(device)
            p.grad = grad.to_sparse() if sparse else grad

        def closure():
            optimizer.zero_grad()
            loss = sum((p * p + p).sum() for p in parameters)
            loss.backward()
            return loss

        optimizer.step(closure if info.step_requires_closure else None)
    state = [v for p in parameters for v in optimizer.state.get(p, {}).values()]
    if info.step_requires_closure:
        state = []  # of a search that has ended: differences of equal numbers
    found = [*parameters, *(v for v in state if isinstance(v, torch.Tensor))]
    for p in parameters:
        assert p.device.type == device
    return [t.detach().to_dense().cpu() if t.is_sparse else t.detach().cpu() for t in found]


@pytest.mark.parametrize(
    ("info", "flag"), CASES, ids=[f"{i.optim_cls.__name__}-{f}" for i, f in CASES]
)
def test_optimizers(info, flag):
    name = info.optim_cls.__name__
    if (name, flag) in OTHER_OPTIMIZERS:
        pytest.xfail(OTHER_OPTIMIZERS[name, flag])
    done = 0
    for given in info.optim_inputs_func(device="cpu"):
        try:
            want = train(info, given, flag, "cpu")
        except Exception:
            continue  # the CPU refuses it: capturable, or not with this implementation
        got = train(info, given, flag, "tpu")
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert g.dtype == w.dtype
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)
        done += 1
    assert done
