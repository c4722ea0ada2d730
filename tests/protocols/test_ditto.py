"""Ditto and FedAvg+ against their formulas in numpy: models of the clients' own beside a global one."""

from typing import Any

import numpy as np
import pytest

from sim.core.simulation import Simulation
from tests.protocols.worlds import QUADRATIC, churn, learner, messages, optima, params, ran

WORLD = (QUADRATIC, "data.clusters=4", "protocol.local_steps=2", "protocol.patience=30 s")
ROUNDS = 4


def descended(x: np.ndarray, a: np.ndarray, mu: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        x = x - 0.1 * a * (x - mu)
    return x


def shared(world: Simulation) -> np.ndarray:
    """The global models that clients received last."""
    learners: list[Any] = [learner(world, i) for i in range(4)]
    return np.stack([each.shared.numpy() for each in learners])


@pytest.mark.parametrize("strength", [0.0, 0.7])
def test_own_models_descend_with_a_pull_towards_the_global_one(strength: float) -> None:
    options = (f"protocol.strength={strength}", "protocol.personal_steps=3", f"run.iterations={ROUNDS}")
    with ran(*WORLD, "protocol.name=ditto", *options, "run.duration=1 min") as world:
        a, mu = optima(world)
        common, own = np.zeros(3), np.zeros((4, 3))
        for _ in range(ROUNDS):
            before = common
            for _ in range(3):
                own = own - 0.1 * (a * (own - mu) + strength * (own - before))
            common = descended(np.tile(before, (4, 1)), a, mu, steps=2).mean(axis=0)
        np.testing.assert_allclose(params(world), own, atol=1e-6)
        np.testing.assert_allclose(shared(world), np.tile(before, (4, 1)), atol=1e-6)
        assert [client.work.steps for client in world.clients] == [ROUNDS * (2 + 3)] * 4


def test_fedavg_plus_keeps_what_it_has_trained_from_the_global_model() -> None:
    with ran(*WORLD, "protocol.name=fedavg-plus", f"run.iterations={ROUNDS}", "run.duration=1 min") as world:
        a, mu = optima(world)
        common = np.zeros(3)
        for _ in range(ROUNDS):
            before = common
            own = descended(np.tile(before, (4, 1)), a, mu, steps=2)
            common = own.mean(axis=0)
        np.testing.assert_allclose(params(world), own, atol=1e-6)
        np.testing.assert_allclose(shared(world), np.tile(before, (4, 1)), atol=1e-6)


@pytest.mark.parametrize("name", ["ditto", "fedavg-plus"])
def test_both_models_are_measured_and_the_own_one_counts(name: str) -> None:
    with ran(*WORLD, f"protocol.name={name}") as world:
        latest = world.observer.metrics.latest
        assert latest("distance") == latest("distance_of_personal")
        assert np.mean(list(latest("distance").values())) < np.mean(
            list(latest("distance_of_shared").values())
        )


def test_one_whose_budget_is_spent_keeps_its_own_model() -> None:
    """It is sent global models for as long as others train, and answers with them."""
    text = WORLD[0].replace('duration = "8 s"\n', "") + churn("join", 3, "9 s")
    with ran(text, *WORLD[1:], "protocol.name=fedavg-plus", "run.budget.steps=4") as world:
        last = [row[0] for row in messages(world, "Contribution") if row[1] == "client-0"]
        answers = [row[0] for row in messages(world, "WithoutTraining") if row[1] == "client-0"]
        assert len(last) == 2 and max(answers) > 9
        a, mu = optima(world)
        common = np.zeros(3)
        for _ in range(2):
            own = descended(np.tile(common, (3, 1)), a[:3], mu[:3], steps=2)
            common = own.mean(axis=0)
        np.testing.assert_allclose(params(world)[:3], own, atol=1e-6)


def test_fine_tuning_from_a_moment_on_spends_what_the_budget_leaves() -> None:
    """A change of `local_steps` makes one long round, of models that begin at the common one."""
    text = WORLD[0].replace('duration = "8 s"\n', "")
    text += '\n[[change]]\nat = "2 s"\nprotocol = { local_steps = 100 }\n'
    with ran(text, *WORLD[1:], "protocol.name=fedavg-plus", "run.budget.steps=20") as world:
        rounds = len([row for row in messages(world, "Contribution") if row[1] == "client-0"]) - 1
        assert 1 <= rounds <= 8
        a, mu = optima(world)
        common = np.zeros(3)
        for _ in range(rounds):
            common = descended(np.tile(common, (4, 1)), a, mu, steps=2).mean(axis=0)
        own = descended(np.tile(common, (4, 1)), a, mu, steps=20 - 2 * rounds)
        np.testing.assert_allclose(params(world), own, atol=1e-6)
