"""DFedAvgM against its matrix iteration, with momentum that is forgotten in each round."""

import numpy as np
import pytest

from tests.protocols.test_dpsgd import metropolis, start
from tests.protocols.worlds import (
    DIGITS,
    QUADRATIC,
    churn,
    learner,
    messages,
    optima,
    params,
    ran,
    start_from,
)

DFEDAVGM = ("protocol.name=dfedavgm", "training.momentum=0.9")


@pytest.mark.long
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.9, False), (0.9, True), (0, False)])
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("topology", ["ring", '{ kind = "erdos-renyi", probability = 0.4 }'])
def test_the_synchronous_form_is_the_matrix_iteration(
    topology: str, steps: int, momentum: float, nesterov: bool
) -> None:
    """Without momentum, which who means it must say, too."""
    x = start(8)
    with ran(
        QUADRATIC,
        "protocol.name=dfedavgm",
        f"training.momentum={momentum}",
        'protocol.unusual=["training.momentum"]',
        f"training.nesterov={str(nesterov).lower()}",
        "clients.count=8",
        f"clients.topology={topology}",
        "data.clusters=4",
        f"protocol.local_steps={steps}",
        "run.iterations=20",
        "run.duration=100 s",
        prepare=lambda world: start_from(world, x),
    ) as world:
        (a, mu), mixing = optima(world), metropolis(world)
        for _ in range(20):
            y, velocity = x, np.zeros_like(x)
            for _ in range(steps):
                slope = a * (y - mu)
                velocity = momentum * velocity + slope
                y = y - 0.1 * (slope + momentum * velocity if nesterov else velocity)
            x = mixing @ y
        np.testing.assert_allclose(params(world), x, atol=2e-6)
        assert [learner(world, i).iterations for i in range(8)] == [20] * 8
        assert set(world.network.counts.by_type) == {"RoundModel"}


def test_by_default_an_iteration_is_an_epoch() -> None:
    with ran(DIGITS, *DFEDAVGM, "protocol.local_epochs=3") as world:
        # 8 samples in batches of 4: 3 epochs of 2 steps of 0.5 s, then 0.25 s for the models.
        assert sorted({row[0] for row in messages(world, "RoundModel")}) == [3.0, 6.25]
        rounds = world.network.counts.by_type["RoundModel"]
        links, numbers = rounds[0] // 2, params(world).shape[1]
        assert links == 6 * 5  # MAPL's Table 7: 2 N_e (theta + phi) T
        assert 4 * numbers * rounds[0] < rounds[1] < (4 * numbers + 120) * rounds[0]


def test_the_asynchronous_form_averages_beside_epochs() -> None:
    x = start(4)
    settings = ("protocol.mode=asynchronous", "protocol.local_steps=3", "run.duration=40 s")
    with ran(
        QUADRATIC,
        *DFEDAVGM,
        *settings,
        "training.learning_rate=1e-30",
        prepare=lambda world: start_from(world, x),
    ) as world:
        np.testing.assert_allclose(params(world).mean(axis=0), x.mean(axis=0), atol=0.1)
        assert params(world).std(axis=0).max() < 0.05 * x.std(axis=0).max()
        assert {learner(world, i).iterations for i in range(4)} == {26}


def test_who_crashes_is_waited_for_once_and_newcomers_are_averaged_in() -> None:
    text = QUADRATIC + churn("crash", 3, "2.1 s") + churn("rejoin", 3, "12 s", "fresh")
    with ran(text, *DFEDAVGM, "protocol.patience=2 s", "run.duration=60 s") as world:
        found = params(world)
        np.testing.assert_allclose(found, np.broadcast_to(optima(world)[1][0], found.shape), atol=1e-2)
        rounds = [learner(world, i).iterations for i in range(4)]
        assert min(rounds[:3]) > 40 and max(rounds[:3]) - min(rounds[:3]) <= 1
