"""AFL: descent and ascent against numpy, its saddle point against a closed form, who comes and goes."""

import numpy as np
import pytest

from protocols.federated.afl import AFL, AFLServer, ascend_weights
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.protocols.worlds import QUADRATIC, churn, learner, make, optima, ran

AGNOSTIC = ("protocol.name=afl", "data.clusters=4", "run.duration=1000 s", "run.evaluate_every=100 s")


def projected(values: np.ndarray) -> np.ndarray:
    """On the simplex, by bisection for the threshold."""
    low, high = values.min() - 1, values.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(values - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(values - low, 0)


def server(world: Simulation) -> AFLServer:
    found = world.supervisor.running["server"]
    assert isinstance(found, AFLServer)
    return found


@pytest.mark.parametrize("on", ["batch", "train"])
def test_rounds_are_descent_and_ascent(on: str) -> None:
    """Whole batches, so that both losses are the same."""
    settings = ("protocol.ascent_rate=0.2", f"protocol.loss_on={on}", "run.iterations=12")
    with ran(QUADRATIC, *AGNOSTIC, *settings) as world:
        (a, mu), x, shares = optima(world), np.zeros(3), np.full(4, 0.25)
        seen = []
        for _ in range(12):
            seen.append(x)
            losses = a[:, 0] / 2 * ((x - mu) ** 2).sum(axis=1)
            x = x - 0.1 * (shares[:, None] * a * (x - mu)).sum(axis=0)
            shares = projected(shares + 0.2 * losses)
        for i in range(4):
            models = learner(world, i).evaluated()
            assert list(models) == ["last", "average"]
            np.testing.assert_allclose(models["last"].numpy(), seen[-1], atol=1e-5)  # type: ignore[union-attr]
            average = np.mean(seen, axis=0)
            np.testing.assert_allclose(models["average"].numpy(), average, atol=1e-5)  # type: ignore[union-attr]


@pytest.mark.long
def test_two_clients_meet_where_their_losses_are_alike() -> None:
    """1/2 |x - mu|^2 each: in the middle."""
    settings = ("clients.count=2", "data.clusters=2", "data.curvatures=[1.0]", "run.iterations=300")
    with ran(QUADRATIC, *AGNOSTIC, *settings, "protocol.ascent_rate=0.1", "run.duration=1000 s") as world:
        _, mu = optima(world)
        model = learner(world, 0).evaluated()["average"]
        np.testing.assert_allclose(model.numpy(), mu.mean(axis=0), atol=0.05)  # type: ignore[union-attr]


def test_the_loss_of_the_worst_is_smaller_than_that_of_federated_averaging() -> None:
    """Three clients agree, and one is far from them."""
    worst = {}
    for name in ("afl", "fedavg"):
        text = QUADRATIC.replace("clusters = 1", "clusters = 2\ncurvatures = [1.0, 1.0, 0.2]")
        options = (f"protocol.name={name}", "clients.count=5", "protocol.local_steps=1", "run.iterations=100")
        with ran(text, *options, "run.duration=200 s", "run.evaluate_every=200 s") as world:
            a, mu = optima(world)
            x = learner(world, 0).params.numpy()
            worst[name] = (a[:, 0] / 2 * ((x - mu) ** 2).sum(axis=1)).max()
    assert worst["afl"] < 0.98 * worst["fedavg"]


def test_only_those_that_answered_are_raised() -> None:
    weights = {"a": 0.5, "b": 0.3, "c": 0.2}
    found = ascend_weights(weights, {"a": 1.0, "c": 0.5}, 0.3)
    np.testing.assert_allclose(list(found.values()), projected(np.array([0.8, 0.3, 0.35])), atol=1e-9)
    assert list(found) == ["a", "b", "c"]


def test_who_goes_has_no_weight_and_who_comes_has_one() -> None:
    text = QUADRATIC + churn("crash", 0, "5.1 s") + churn("join", 3, "20 s")
    with ran(
        text, *AGNOSTIC, "protocol.patience=3 s", "run.duration=40 s", "run.evaluate_every=40 s"
    ) as world:
        weights = server(world).weights
        assert set(weights) == {"client-1", "client-2", "client-3"}
        assert sum(weights.values()) == pytest.approx(1) and min(weights.values()) >= 0
        newcomer = learner(world, 3)
        assert isinstance(newcomer, AFL) and newcomer.iterations > 10
        assert newcomer.received - newcomer.iterations in (0, 1), "one may be under way"


def test_it_is_sgd() -> None:
    with pytest.raises(UserError, match=r"training.optimizer.*descent and ascent"):
        make(QUADRATIC, "protocol.name=afl", "training.optimizer=adam")
    with pytest.raises(UserError, match=r"training.momentum.*must be 0, as in plain SGD"):
        make(QUADRATIC, "protocol.name=afl", "training.momentum=0.5")


def test_a_round_may_be_of_epochs() -> None:
    text = QUADRATIC.replace("samples = 2", "samples = 8")
    for options, steps in (((), 1), (("protocol.local_epochs=2",), 8), (("protocol.local_steps=3",), 3)):
        with ran(text, *AGNOSTIC, *options, "run.iterations=2") as world:
            assert {client.work.steps for client in world.clients} == {2 * steps}
