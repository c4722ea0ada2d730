"""pFedMe on quadratics: its rounds in numpy, and where they end in closed form."""

from collections.abc import Mapping

import numpy as np
import pytest

from protocols.federated.pfedme import PFedMe, PFedMeServer
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.protocols.worlds import QUADRATIC, learner, make, optima, ran

MOREAU = ("protocol.name=pfedme", "data.clusters=4", "run.duration=10000 s", "run.evaluate_every=5000 s")


def models(world: Simulation, name: str) -> np.ndarray:
    """Everybody's model of that name, [N, d]."""
    rows = []
    for i in range(len(world.clients)):
        client = learner(world, i)
        assert isinstance(client, PFedMe)
        rows.append(client.evaluated()[name].numpy())
    return np.stack(rows)


@pytest.mark.parametrize(("beta", "steps"), [(1.0, 1), (1.0, 4), (0.5, 3), (2.0, 2)])
def test_a_round_is_the_papers_algorithm_1(beta: float, steps: int) -> None:
    settings = ("protocol.strength=3", "protocol.outer_rate=0.1", "protocol.personal_steps=2")
    options = (f"protocol.server_mixing={beta}", f"protocol.local_steps={steps}", "run.iterations=6")
    with ran(QUADRATIC, *MOREAU, *settings, *options) as world:
        (a, mu), x = optima(world), np.zeros(3)
        for _ in range(6):
            told = x
            w = np.tile(x, (4, 1))
            theta = w
            for _ in range(steps):
                for _ in range(2):
                    theta = theta - 0.1 * (a * (theta - mu) + 3 * (theta - w))
                w = w - 0.1 * 3 * (w - theta)
            x = (1 - beta) * x + beta * w.mean(axis=0)
        np.testing.assert_allclose(models(world, "personal"), theta, atol=2e-5)
        np.testing.assert_allclose(models(world, "common"), np.tile(told, (4, 1)), atol=2e-5)


def test_all_train_in_a_round_and_the_sampled_count() -> None:
    """Each average is of the two sampled clients' w_i, and every theta_i comes of the last w."""
    told: list[tuple[frozenset[str], np.ndarray]] = []
    combine = PFedMeServer.combine

    def noting(server: PFedMeServer, answers: Mapping[str, object], number: int) -> None:
        combine(server, answers, number)
        told.append((server.sampled, server.params.numpy()))

    settings = ("protocol.strength=3", "protocol.outer_rate=0.1", "protocol.personal_steps=2")
    options = ("protocol.fraction=0.5", "protocol.local_steps=1", "run.iterations=5")
    with pytest.MonkeyPatch.context() as monkey:
        monkey.setattr(PFedMeServer, "combine", noting)
        with ran(QUADRATIC, *MOREAU, *settings, *options) as world:
            (a, mu), x = optima(world), np.zeros(3)
            personal = models(world, "personal")
    for sampled, average in told[:4]:
        w, _ = moreau_step(a, mu, x)
        x = w[[int(name.removeprefix("client-")) for name in sorted(sampled)]].mean(axis=0)
        np.testing.assert_allclose(average, x, atol=2e-5)
    np.testing.assert_allclose(personal, moreau_step(a, mu, x)[1], atol=2e-5)
    assert {len(sampled) for sampled, _ in told} == {2} and len({sampled for sampled, _ in told}) > 1


def moreau_step(a: np.ndarray, mu: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """w_i and theta_i of all clients after one iteration from x, as in the test above."""
    theta = np.tile(x, (4, 1))
    for _ in range(2):
        theta = theta - 0.1 * (a * (theta - mu) + 3 * (theta - x))
    return x - 0.1 * 3 * (x - theta), theta


@pytest.mark.long
def test_it_ends_at_the_minimum_of_the_mean_moreau_envelope() -> None:
    """F_i(w) = c_i/2 |w - mu_i|^2 with c = a strength/(a + strength), theta_i between mu_i and w."""
    settings = ("protocol.strength=2", "protocol.outer_rate=0.2", "protocol.personal_steps=30")
    spread = (
        "data.curvatures=[1.0, 0.5]",
        "protocol.local_steps=1",
        "run.iterations=60",
        "protocol.patience=1 h",
    )
    with ran(QUADRATIC, *MOREAU, *settings, *spread, "run.duration=10000 s") as world:
        a, mu = optima(world)
        c = a * 2 / (a + 2)
        w = (c * mu).sum(axis=0) / c.sum()
        np.testing.assert_allclose(models(world, "common"), np.tile(w, (4, 1)), atol=2e-3)
        np.testing.assert_allclose(models(world, "personal"), (a * mu + 2 * w) / (a + 2), atol=2e-3)


def test_a_common_model_must_not_jump_beyond_the_personal_ones() -> None:
    with pytest.raises(UserError, match=r"outer_rate.*must be at most 1 / strength = 0.0666"):
        make(QUADRATIC, *MOREAU, "protocol.outer_rate=0.1")


def test_who_has_spent_its_budget_keeps_its_personal_model() -> None:
    """Two rounds of 15 steps; the third task brings the last average, and no training."""
    with ran(QUADRATIC, *MOREAU, "protocol.local_steps=3", "run.budget.steps=30") as world:
        apart = np.abs(models(world, "personal") - models(world, "common")).max(axis=1)
        assert {client.work.steps for client in world.clients} == {30} and apart.min() > 1e-3


@pytest.mark.parametrize("alone", ["false", "true"])
def test_a_budget_counts_every_step(alone: str) -> None:
    options = ("protocol.local_steps=3", "run.budget.steps=37", f"protocol.alone={alone}")
    with ran(QUADRATIC, *MOREAU, *options) as world:
        assert (world.network.counts.sent == 0) == (alone == "true")
        assert {client.work.steps for client in world.clients} == {37}  # a round has 3 x 5
