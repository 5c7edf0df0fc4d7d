"""The state is a seed and an offset that every random op moves by what it draws, in every mode."""

import pytest
import torch
import torch.nn.functional as F
from helpers import exact, run_python

from torch_tpu import debug
from torch_tpu.mode import EagerMode, set_eager_mode

OPS = {
    "rand": lambda: torch.rand(6, device="tpu"),
    "randn": lambda: torch.randn(3, 5, device="tpu"),
    "randint": lambda: torch.randint(9, (7,), device="tpu"),
    "randperm": lambda: torch.randperm(10, device="tpu"),
    "bernoulli": lambda: torch.empty(5, device="tpu").bernoulli_(0.4),
    "exponential_": lambda: torch.empty(4, device="tpu").exponential_(),
    "dropout": lambda: F.dropout(torch.ones(8, device="tpu"), 0.5),
    "double": lambda: torch.rand(5, dtype=torch.float64, device="tpu"),
}


def state():
    seed, offset = torch.tpu.get_rng_state().view(torch.int64).tolist()
    return seed, offset


def at(seed, offset):
    torch.tpu.set_rng_state(torch.tensor([seed, offset]).view(torch.uint8))


@pytest.mark.parametrize("name", OPS)
def test_a_draw_depends_on_seed_and_offset_only(name, mode):
    torch.manual_seed(3)
    offsets, values = [], []
    for op in [*OPS, name, name]:
        offsets.append(state()[1])
        values.append((op, OPS[op]()))
    assert offsets == sorted(set(offsets)) and all(o % 4 == 0 for o in offsets)
    for (op, value), offset in reversed(list(zip(values, offsets, strict=True))):
        at(3, offset)
        exact(OPS[op](), value.cpu())


def test_offsets_are_the_same_in_all_modes():
    seen = []
    for m in EagerMode:
        with set_eager_mode(m):
            torch.manual_seed(1)
            seen.append([(f().cpu().tolist(), state()) for f in OPS.values()])
    assert seen[0] == seen[1] == seen[2]


def test_the_offset_grows_with_the_numbers_drawn():
    torch.manual_seed(0)
    steps = []
    for n in (1, 4, 5, 1000):
        before = state()[1]
        torch.rand(n, device="tpu")
        steps.append(state()[1] - before)
    assert steps == sorted(steps) and steps[-1] >= 1000
    before = state()[1]
    torch.rand(0, device="tpu")
    assert state()[1] - before in (0, 4)


def test_a_large_draw_does_not_repeat_the_next():
    torch.manual_seed(0)
    a = torch.rand(10_000, device="tpu").cpu()
    b = torch.rand(10_000, device="tpu").cpu()
    assert not torch.isin(b, a).float().mean() > 0.01


def test_no_compile_for_seeds_offsets_and_generators(mode):
    generator = torch.Generator("tpu")

    def draw(seed):
        torch.manual_seed(seed)
        generator.manual_seed(seed + 1)
        x = [torch.rand(5, device="tpu"), torch.randn(5, device="tpu", generator=generator)]
        x += [
            torch.empty(5, device="tpu").uniform_(seed, seed + 2),
            F.dropout(x[0], 0.1 + seed / 100),
        ]
        x += [torch.empty(5, device="tpu").normal_(seed, 2.0), torch.bernoulli(x[0])]
        return [t.cpu() for t in x]

    draw(0), draw(1)
    before = debug.compile_count()
    drawn = [draw(s) for s in range(2, 12)]
    assert debug.compile_count() == before
    assert len({tuple(d[0].tolist()) for d in drawn}) == 10


def test_restoring_the_state_replays_a_training_step(mode):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    model = model.to("tpu")
    x = torch.randn(16, 8).to("tpu")
    saved = torch.tpu.get_rng_state()
    losses = []
    for _ in range(2):
        torch.tpu.set_rng_state(saved)
        losses.append([model(x).sum().item() for _ in range(3)])
    assert losses[0] == losses[1] and len(set(losses[0])) == 3


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_replays_dropout_in_every_mode(mode, reentrant):
    w = torch.randn(16, 16).to("tpu").requires_grad_()
    x = torch.ones(4, 16).to("tpu").requires_grad_()

    def block(x):
        return F.dropout(F.dropout(x @ w, 0.5) @ w, 0.2)

    grads = []
    for f in (
        block,
        lambda x: torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant),
    ):
        torch.manual_seed(9)
        w.grad = x.grad = None
        f(x).square().sum().backward()
        grads.append((w.grad.cpu(), x.grad.cpu()))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_fork_rng_restores_the_devices_state(mode):
    torch.manual_seed(4)
    torch.rand(3, device="tpu")
    before = state()
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        torch.manual_seed(77)
        torch.rand(100, device="tpu")
        assert state()[0] == 77
    assert state() == before


def test_a_generator_of_its_own_leaves_the_default_alone(mode):
    g = torch.Generator("tpu").manual_seed(5)
    torch.manual_seed(5)
    before = state()
    a = torch.rand(4, device="tpu", generator=g).cpu()
    assert state() == before and g.get_offset() > 0
    exact(torch.rand(4, device="tpu"), a)


def test_generators_of_other_devices_are_refused():
    mine, theirs = torch.Generator("tpu"), torch.Generator()
    with pytest.raises(RuntimeError, match="Expected a 'tpu' device type for generator but found"):
        torch.rand(3, device="tpu", generator=theirs)
    for draw in (
        lambda: torch.rand(3, generator=mine),
        lambda: torch.randint(5, (3,), generator=mine),
        lambda: torch.randperm(5, generator=mine),
        lambda: torch.ones(()).normal_(generator=mine),
        lambda: torch.bernoulli(torch.ones(3) / 2, generator=mine),
        lambda: torch.multinomial(torch.ones(3), 2, generator=mine),
        lambda: torch.normal(torch.ones(3), torch.ones(3), generator=mine),
        lambda: torch.poisson(torch.ones(3), generator=mine),
    ):
        with pytest.raises(
            RuntimeError, match="Expected a 'cpu' device type for generator but found 'tpu'"
        ):
            draw()


def test_devices_have_states_of_their_own():
    out = run_python(
        """
        import torch
        torch.manual_seed(2)
        a, b = (torch.rand(3, device=f"tpu:{i}") for i in range(2))
        print(torch.equal(a.cpu(), b.cpu()))
        torch.rand(3, device="tpu:1")
        offsets = [s.view(torch.int64)[1].item() for s in torch.tpu.get_rng_state_all()]
        print(offsets[1] > offsets[0], torch.tpu.get_rng_state("tpu:1").view(torch.int64)[0].item())
        """,
        TORCH_TPU_CPU_DEVICE_COUNT="2",
    )
    assert out == "True\nTrue 2\n"


def test_the_same_numbers_in_another_process():
    code = "import torch; torch.manual_seed(8); print(torch.randn(5, device='tpu').tolist())"
    torch.manual_seed(8)
    here = torch.randn(5, device="tpu").tolist()
    assert run_python(code) == f"{here}\n"


def test_a_call_that_is_refused_takes_nothing_from_the_state(mode):
    torch.manual_seed(0)
    before = state()
    for bad in (
        lambda: torch.multinomial(torch.ones(3, device="tpu"), 4),
        lambda: torch.randint(5, 5, (3,), device="tpu"),
        lambda: torch.normal(torch.zeros(3, device="tpu"), torch.ones(4, device="tpu")),
        lambda: F.dropout(torch.ones(3, device="tpu"), 1.5),
    ):
        with pytest.raises((RuntimeError, ValueError)):
            bad()
    assert state() == before


@pytest.mark.parametrize("name", ["uniform_", "exponential_", "normal_", "geometric_", "cauchy_"])
def test_bad_parameters_are_told_at_the_next_wait(name, mode):
    # Numbers are operands: their ranges are checked where the program runs.
    bad = (2.0, 1.0) if name == "uniform_" else (0.0, -1.0)
    bad = bad if name in ("uniform_", "normal_", "cauchy_") else (-1.0,)
    with pytest.raises(RuntimeError):
        getattr(torch.empty(3), name)(*bad)
    with pytest.raises(RuntimeError):
        getattr(torch.empty(3, device="tpu"), name)(*bad)
        torch.tpu.synchronize()
    exact(torch.ones(2, device="tpu") + 1, torch.full((2,), 2.0))
