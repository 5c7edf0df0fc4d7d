"""Generators: state, seeds, independence."""

import pytest
import torch
import torch.nn.functional as F
from helpers import exact, same

import torch_tpu.debug

DRAWS = {
    "rand": lambda: torch.rand(5, device="tpu"),
    "randn": lambda: torch.randn(5, device="tpu"),
    "randint": lambda: torch.randint(100, (9,), device="tpu"),
    "randperm": lambda: torch.randperm(50, device="tpu"),
    "uniform_": lambda: torch.empty(5, device="tpu").uniform_(),
    "normal_": lambda: torch.empty(5, device="tpu").normal_(),
    "exponential_": lambda: torch.empty(5, device="tpu").exponential_(),
    "bernoulli": lambda: torch.bernoulli(torch.full((64,), 0.5, device="tpu")),
    "bernoulli_": lambda: torch.empty(64, device="tpu").bernoulli_(0.5),
    "multinomial": lambda: torch.multinomial(torch.ones(50, device="tpu"), 20),
    "dropout": lambda: F.dropout(torch.ones(64, device="tpu"), 0.5),
    "random_": lambda: torch.empty(9, dtype=torch.int64, device="tpu").random_(0, 1000),
    "rand_like": lambda: torch.rand_like(torch.ones(5, device="tpu")),
    "normal": lambda: torch.normal(torch.zeros(5, device="tpu"), 1.0),
}


def parts(state):
    assert state.device.type == "cpu" and state.dtype == torch.uint8 and state.shape == (16,)
    return state.view(torch.int64).tolist()


@pytest.mark.parametrize("name", DRAWS)
def test_every_random_op_advances_the_offset_and_is_repeatable(name):
    torch.manual_seed(11)
    seed, offset = parts(torch.tpu.get_rng_state())
    assert (seed, offset) == (11, 0)
    first, second = DRAWS[name]().cpu(), DRAWS[name]().cpu()
    seed, offset = parts(torch.tpu.get_rng_state())
    assert seed == 11 and offset > 0 and offset % 4 == 0
    assert not torch.equal(first, second)
    torch.manual_seed(11)
    exact(DRAWS[name](), first)
    exact(DRAWS[name](), second)


@pytest.mark.parametrize("name", ["rand", "randn", "dropout", "randint", "exponential_"])
def test_modes_draw_the_same(name):
    drawn = []
    for mode in torch.tpu.EagerMode:
        with torch.tpu.set_eager_mode(mode):
            torch.manual_seed(1)
            drawn.append(torch.cat([DRAWS[name]().cpu().float() for _ in range(3)]))
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])


def test_state_round_trip():
    torch.manual_seed(2)
    torch.rand(3, device="tpu")
    state = torch.tpu.get_rng_state()
    a = torch.randn(4, device="tpu").cpu()
    torch.tpu.set_rng_state(state)
    exact(torch.randn(4, device="tpu"), a)
    torch.tpu.set_rng_state_all([state])
    exact(torch.randn(4, device="tpu"), a)
    assert torch.equal(torch.tpu.get_rng_state_all()[0], torch.tpu.get_rng_state("tpu:0"))
    with pytest.raises((RuntimeError, TypeError)):
        torch.tpu.set_rng_state(torch.zeros(15, dtype=torch.uint8))
    with pytest.raises((RuntimeError, TypeError)):
        torch.tpu.set_rng_state(torch.zeros(16))


def test_seeding():
    torch.tpu.manual_seed(4)
    a = torch.rand(3, device="tpu").cpu()
    assert torch.tpu.initial_seed() == 4
    torch.tpu.manual_seed_all(4)
    exact(torch.rand(3, device="tpu"), a)
    torch.tpu.seed()
    first = torch.tpu.initial_seed()
    torch.tpu.seed_all()
    assert torch.tpu.initial_seed() != first
    torch.manual_seed(-1)  # wraps as on the CPU
    assert torch.tpu.initial_seed() == torch.initial_seed()
    torch.seed()
    assert torch.tpu.initial_seed() == torch.initial_seed()


def test_default_generators():
    generators = torch.tpu.default_generators
    assert len(generators) == torch.tpu.device_count()
    assert generators[0].device == torch.device("tpu:0")
    generators[0].manual_seed(9)
    assert torch.tpu.initial_seed() == 9
    a = torch.rand(3, device="tpu", generator=generators[0]).cpu()
    torch.manual_seed(9)
    exact(torch.rand(3, device="tpu"), a)


def test_generators_are_independent():
    one, two = (torch.Generator("tpu").manual_seed(3) for _ in range(2))
    torch.manual_seed(0)
    plain = torch.rand(3, device="tpu").cpu()
    torch.manual_seed(0)
    a = torch.randn(3, device="tpu", generator=one).cpu()
    exact(torch.rand(3, device="tpu"), plain)
    exact(torch.randn(3, device="tpu", generator=two), a)
    state = one.get_state()
    b = torch.randn(3, device="tpu", generator=one).cpu()
    two.set_state(state)
    exact(torch.randn(3, device="tpu", generator=two), b)
    clone = one.clone_state()
    exact(
        torch.randn(3, device="tpu", generator=clone),
        torch.randn(3, device="tpu", generator=one).cpu(),
    )
    one.set_offset(8)
    assert one.get_offset() == 8 and one.seed() == one.initial_seed()
    with pytest.raises(RuntimeError):
        torch.rand(2, device="tpu", generator=torch.Generator())


def test_fork_rng():
    torch.manual_seed(0)
    with torch.random.fork_rng(device_type="tpu"):
        inside = torch.rand(3, device="tpu").cpu()
    exact(torch.rand(3, device="tpu"), inside)


def test_no_compile_for_a_draw_of_known_shape():
    torch.rand(7, device="tpu"), F.dropout(torch.ones(7, device="tpu"), 0.3)
    torch.tpu.synchronize()
    before = torch_tpu.debug.compile_count()
    for p in (0.1, 0.2, 0.7):
        torch.rand(7, device="tpu"), F.dropout(torch.ones(7, device="tpu"), p)
    torch.tpu.synchronize()
    assert torch_tpu.debug.compile_count() == before


def test_checkpoint_replays_dropout():
    torch.manual_seed(0)
    w = torch.randn(32, 32, device="tpu", requires_grad=True)
    x = torch.ones(4, 32, device="tpu")

    def block(x):
        return F.dropout(x @ w, 0.5)

    grads = []
    for use_checkpoint in (False, True):
        torch.manual_seed(1)
        w.grad = None
        if use_checkpoint:
            out = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        else:
            out = block(x)
        out.sum().backward()
        grads.append(w.grad.cpu())
    assert torch.equal(*grads) and grads[0].abs().sum() > 0


def test_truncated_normal_ends():
    torch.manual_seed(0)
    x = torch.empty(2000, device="tpu")
    torch.nn.init.trunc_normal_(x, std=1.0, a=-1.0, b=1.0)
    assert x.abs().max().item() <= 1 and x.std().item() > 0.3


def test_initialisers_have_their_moments():
    torch.manual_seed(0)
    x = torch.empty(200, 300, device="tpu")
    torch.nn.init.kaiming_normal_(x)
    same(x.std(), torch.tensor((2 / 300) ** 0.5), rtol=0.05, atol=0)
    torch.nn.init.orthogonal_(y := torch.empty(8, 8, device="tpu"))
    same(y @ y.T, torch.eye(8), rtol=0, atol=1e-5)
