"""FedFomo: its weights by the formula, whole rounds against numpy, and whom the server lets clients try."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.federated.fedfomo import first_order_weights
from sim.errors import UserError
from tests.protocols.worlds import DIGITS, QUADRATIC, make, optima, params, ran

FOMO = ("protocol.name=fedfomo", "protocol.losses_on=train", "protocol.local_steps=2")
LOSSES = st.floats(0, 10, width=32)


def test_weights_are_gains_over_distances() -> None:
    found = first_order_weights(2.0, [1.0, 3.0, 1.5, 2.0], [2.0, 1.0, 0.5, 1.0])
    assert found == [0.5 / 1.5, 0.0, 1.0 / 1.5, 0.0]
    assert first_order_weights(1.0, [1.0, 2.0], [1.0, 1.0]) == [0.0, 0.0]
    assert first_order_weights(1.0, [np.nan, 0.5], [1.0, 4.0]) == [0.0, 1.0]
    assert first_order_weights(1.0, [0.5], [0.0]) == [0.0]
    assert first_order_weights(np.inf, [0.5, 1.0], [1.0, 1.0]) == [0.0, 0.0]


@given(LOSSES, st.lists(st.tuples(LOSSES, st.floats(0.01, 10)), max_size=6))
def test_weights_are_shares_of_those_that_help(before: float, others: list[tuple[float, float]]) -> None:
    losses = [loss for loss, _ in others]
    weights = first_order_weights(before, losses, [distance for _, distance in others])
    assert all((weight > 0) == (loss < before) for weight, loss in zip(weights, losses, strict=True))
    assert sum(weights) == pytest.approx(1.0 if any(loss < before for loss in losses) else 0.0)


def test_each_round_is_the_papers() -> None:
    """All models go to all, so that nothing is drawn; two clusters of two, whole batches."""
    with ran(QUADRATIC, *FOMO, "data.clusters=2", "run.iterations=6", "run.duration=1 min") as world:
        a, mu = optima(world)

        def loss(i: int, x: np.ndarray) -> float:
            return float(a[i, 0] / 2 * ((x - mu[i]) ** 2).sum())

        before, latest = np.zeros((4, 3)), np.zeros((4, 3))
        for number in range(6):
            start = np.zeros((4, 3))
            for i in range(4):
                gains = [loss(i, before[i]) - loss(i, latest[n]) for n in range(4)]
                far = np.linalg.norm(latest - before[i], axis=1)
                weights = np.array(
                    [max(0.0, gain) / d if d else 0.0 for gain, d in zip(gains, far, strict=True)]
                )
                share = weights / weights.sum() if weights.sum() else weights
                start[i] = before[i] + share @ (latest - before[i]) if number else 0.0
            before, latest = start, start.copy()
            for _ in range(2):
                latest = latest - 0.1 * a * (latest - mu)
        np.testing.assert_allclose(params(world), latest, atol=1e-5)


def test_helpers_are_asked_for_again() -> None:
    options = ("protocol.models=1", "protocol.epsilon=0.3", "data.clusters=2", "run.duration=60 s")
    with ran(QUADRATIC, *FOMO, *options, "training.learning_rate=0.02") as world:
        server: Any = world.supervisor.running["server"]
        partner = {
            "client-0": "client-1",
            "client-1": "client-0",
            "client-2": "client-3",
            "client-3": "client-2",
        }
        for client, affinity in server.affinities.items():
            assert max(affinity, key=lambda peer: affinity[peer]) == partner[client]
        drawn = [next(iter(server.task("client-0", 99).models)) for _ in range(300)]
        # Greedily with .7, and as one of three with .3.
        assert 0.8 - 0.12 < drawn.count("client-1") / 300 < 0.8 + 0.12
        assert set(drawn) == {"client-1", "client-2", "client-3"}


def test_losses_on_held_back_samples_need_some() -> None:
    with pytest.raises(UserError, match=r"data\.validation_share"):
        make(DIGITS, "protocol.name=fedfomo")


def test_a_broadcast_is_refused() -> None:
    with pytest.raises(UserError, match=r"protocol\.broadcast = .*has no effect: the result of a round"):
        make(QUADRATIC, *FOMO, "protocol.broadcast=all")
