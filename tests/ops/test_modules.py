"""PyTorch's module database on tpu against CPU: results, gradients of inputs and parameters.

Every module, training and evaluation, in float32. One input a module by default;
TORCH_TPU_TEST_MODULE_INPUTS=0 takes all.
"""

import os

import pytest
import torch
from ops.expectations import OTHER_MODULES, RANDOM_MODULES
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

INPUTS = int(os.environ.get("TORCH_TPU_TEST_MODULE_INPUTS", "1"))


def tensors(tree):
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def moved(tree, device):
    def move(x):
        if not isinstance(x, torch.Tensor):
            return x
        y = x.detach().clone().to(device)
        return y.requires_grad_() if x.requires_grad else y

    return pytree.tree_map(move, tree)


def run(info, given, training, device):
    """Results and gradients of one module on one device, all on the CPU."""
    made = given.constructor_input
    torch.manual_seed(0)
    module = info.module_cls(*made.args, **made.kwargs)
    module.train(training)
    forward = given.forward_input
    if any(torch.nn.parameter.is_lazy(p) for p in module.parameters()):
        module(*forward.args, **forward.kwargs)  # parameters are drawn here
    module = module.to(device)
    args, kwargs = moved((forward.args, forward.kwargs), device)
    torch.manual_seed(1)
    result = module(*args, **kwargs)
    outputs = [t for t in tensors(result) if t.requires_grad]
    inputs = [t for t in (*tensors((args, kwargs)), *module.parameters()) if t.requires_grad]
    gradients = []
    if outputs and inputs:
        weights = [
            torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape).to(t.dtype).to(device)
            for t in outputs
        ]
        gradients = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
    state = list(module.state_dict().values())
    found = [*tensors(result), *gradients, *(t for t in state if isinstance(t, torch.Tensor))]
    for t in found:
        assert t is None or t.device.type == device
    return [t if t is None else t.detach().cpu() for t in found]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name)
def test_modules(info, training):
    if torch.float32 not in info.dtypes:
        pytest.skip("not for float32")
    if info.name in OTHER_MODULES:
        pytest.xfail(OTHER_MODULES[info.name])
    torch.manual_seed(0)
    given = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
    )
    if INPUTS:
        given = given[:: max(1, -(-len(given) // INPUTS))]
    done = 0
    for one in given:
        try:
            want = run(info, one, training, "cpu")
        except Exception:
            continue  # the CPU refuses it
        got = run(info, one, training, "tpu")
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert (g is None) == (w is None)
            if g is None:
                continue
            assert g.dtype == w.dtype and g.shape == w.shape
            if not (training and info.name in RANDOM_MODULES):
                torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-3, equal_nan=True)
        done += 1
    if not done:
        pytest.skip("the CPU accepts no input")
