"""CGA: its projection against a solver, its rounds in numpy, and both forms in bad weather."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from protocols.decentralized.cga import CrossGradients, project_to_agreement
from sim.errors import UserError
from tests.draws import examples
from tests.protocols.test_dpsgd import metropolis, start
from tests.protocols.worlds import DIGITS, QUADRATIC, learner, make, messages, optima, params, ran, start_from

RING = ("protocol.name=cga", "clients.count=5", "data.clusters=5", "clients.topology=ring")


def nearest(own: np.ndarray, others: np.ndarray, margin: float = 0.0) -> np.ndarray:
    """By Lawson and Hanson's algorithm: minimize |own + sum (margin + u) g| over u >= 0."""
    shifted = own + margin * others.sum(axis=0)
    u, _ = nnls(others.T, -shifted)
    return shifted + u @ others


@examples(60)
@given(seed=st.integers(0, 10_000), others=st.integers(1, 5), margin=st.sampled_from([0.0, 0.5]))
def test_the_projection_is_that_of_a_solver(seed: int, others: int, margin: float) -> None:
    generator = np.random.default_rng(seed)
    own, gradients = generator.normal(size=8), generator.normal(size=(others, 8))
    found = project_to_agreement(torch.tensor(own), *torch.tensor(gradients), margin=margin).numpy()
    np.testing.assert_allclose(found, nearest(own, gradients, margin), atol=1e-3)
    if not margin:
        assert (gradients @ found > -1e-3).all()


def test_a_gradient_that_contradicts_nobody_stays_and_gradients_of_zero_forbid_nothing() -> None:
    own = torch.tensor([1.0, 2.0, 0.0])
    kind, none = torch.tensor([0.5, 0.5, 0.5]), torch.zeros(3)
    assert torch.equal(project_to_agreement(own, kind, none, margin=0.0), own)
    opposite = torch.tensor([-2.0, 0.0, 0.0])
    np.testing.assert_allclose(
        project_to_agreement(own, opposite, none, margin=0.0), [0.0, 2.0, 0.0], atol=1e-7
    )


@pytest.mark.parametrize(("momentum", "margin"), [(0.0, 0.0), (0.8, 0.0), (0.5, 0.5)])
def test_a_round_is_the_projection_and_the_mixing_of_neighbours(momentum: float, margin: float) -> None:
    x, rate = start(5), 0.1
    options = (f"protocol.momentum={momentum}", f"protocol.margin={margin}", "run.iterations=15")
    with ran(
        QUADRATIC, *RING, *options, "run.duration=100 s", prepare=lambda world: start_from(world, x)
    ) as world:
        (a, mu), mixing = optima(world), metropolis(world)
        velocity, changed = np.zeros_like(x), False
        for _ in range(15):
            steps = []
            for i in range(5):
                crossed = [a[j] * (x[i] - mu[j]) for j in range(5) if j != i and mixing[i, j] > 0]
                own = a[i] * (x[i] - mu[i])
                steps.append(nearest(own, np.stack(crossed), margin))
                changed |= not np.allclose(steps[-1], own)
            velocity = momentum * velocity - rate * np.stack(steps)
            x = mixing @ x + velocity
        assert changed
        np.testing.assert_allclose(params(world), x, atol=1e-4)
        sent = {kind: count for kind, (count, _) in world.network.counts.by_type.items()}
        assert sent == {"RoundModel": 160, "CrossGradient": 150}, "models of the 16th round are on their way"


@pytest.mark.parametrize("lost", [0.05, 0.3])
def test_a_round_is_the_same_whatever_is_lost(lost: float) -> None:
    found = []
    for weather in ((), ("network.link=datagram", f"network.loss={lost}")):
        with ran(QUADRATIC, *RING, "run.iterations=6", "run.duration=2000 s", *weather) as world:
            found.append(params(world))
            assert [learner(world, i).iterations >= 6 for i in range(5)] == [True] * 5
    if lost < 0.1:  # the others may be a round ahead when the last one ends
        assert np.abs(found[0] - found[1]).max() < 0.3
    assert np.isfinite(found[1]).all()


@pytest.mark.long
def test_without_rounds_nobody_waits_for_a_straggler() -> None:
    slow = "devices.override=[{clients=[4], slowdown=20}]"
    weather = ("network.link=datagram", "network.loss=0.3")
    options = ("protocol.mode=asynchronous", "run.duration=60 s", "run.evaluate_every=60 s")
    with ran(QUADRATIC, *RING, *options, slow, *weather) as world:
        iterations = [learner(world, i).iterations for i in range(5)]
        # Of two jobs of the device one may be a gradient for a neighbor.
        assert min(iterations[:4]) >= 50 and iterations[4] >= 2
        one = learner(world, 0)
        assert (
            isinstance(one, CrossGradients) and set(one.crossed) <= {"client-1", "client-4"} and one.crossed
        )
        assert len(messages(world, "CrossExchange")) > 20
        _, mu = optima(world)
        # All near a compromise: nearer to the mean of all optima than those are.
        assert np.abs(params(world)[:4] - mu.mean(axis=0)).max() < np.abs(mu - mu.mean(axis=0)).max()


def test_a_schedule_is_refused_with_a_margin() -> None:
    """Without a margin, the length of the neighbors' gradients does not matter."""
    schedule = 'training.schedule={kind="step", every="9 steps"}'
    make(DIGITS, "protocol.name=cga", schedule)
    with pytest.raises(UserError, match=r"training\.schedule = .*with margin > 0; must be left out"):
        make(DIGITS, "protocol.name=cga", "protocol.margin=0.5", schedule)
