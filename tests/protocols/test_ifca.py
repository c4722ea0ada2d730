"""IFCA against its algorithm in numpy, on logistic regression with whole batches."""

from typing import Any

import numpy as np
import pytest
import torch

from protocols.federated.ifca import IFCAServer
from protocols.shared.several_models import with_signs
from sim.core.simulation import Simulation
from sim.learning.models.modules.batch_norm import BatchNorm
from tests.protocols.decoupled import own_data
from tests.protocols.test_fedavg import softmax_gradient
from tests.protocols.worlds import DIGITS, at, churn, learner, params, ran

WORLD = (
    DIGITS,
    "protocol.name=ifca",
    "protocol.models=3",
    "protocol.local_steps=2",
    "training.batch_size=8",
)


def server(world: Simulation) -> Any:
    return world.supervisor.running["server"]


def loss(x: np.ndarray, y: np.ndarray, flat: np.ndarray) -> float:
    """Mean cross-entropy of logistic regression; flat: weights [10, d], then biases [10]."""
    d = x.shape[1]
    logits = x @ flat[: 10 * d].reshape(10, d).T + flat[10 * d :]
    logits = logits - logits.max(axis=1, keepdims=True)
    return float((np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y]).mean())


def test_each_round_is_the_papers() -> None:
    found: list[list[np.ndarray]] = []

    def looking(simulation: Simulation) -> None:
        found.append(at(simulation, 0.01, lambda: [model.numpy() for model in server(simulation).models]))  # type: ignore[arg-type]

    with ran(*WORLD, "run.iterations=5", "run.duration=1 min", prepare=looking) as world:
        owned = [own_data(world, i) for i in range(6)]
        samples = [(images.flatten(1).numpy(), labels.numpy()) for images, labels in owned]
        models = [model.astype(np.float64) for model in found[0][0]]
        assert max(np.abs(models[0] - other).max() for other in models[1:]) > 0.01
        for _ in range(5):
            received = [min(models, key=lambda model, own=own: loss(*own, model)) for own in samples]  # type: ignore[misc]
            chosen = [next(k for k, model in enumerate(models) if model is each) for each in received]
            trained = []
            for own, model in zip(samples, received, strict=True):
                for _ in range(2):
                    model = model - 0.1 * softmax_gradient(*own, model)
                trained.append(model)
            for k in set(chosen):
                members = [each for each, cluster in zip(trained, chosen, strict=True) if cluster == k]
                models[k] = np.mean(members, axis=0)
        np.testing.assert_allclose(params(world), np.stack(received), atol=1e-5)
        learners: list[Any] = [learner(world, i) for i in range(6)]
        assert [each.cluster for each in learners] == chosen


def test_clusters_and_newcomers_find_their_models() -> None:
    more = ("data.partition.samples_per_client=40", "protocol.models=2", "protocol.local_steps=10")
    times = ("devices.step_time=31.25 ms", "run.duration=30 s", "training.learning_rate=0.3")
    with ran(DIGITS + churn("join", 5, "15 s"), *WORLD[1:], *more, *times) as world:
        assert world.clusters is not None
        learners: list[Any] = [learner(world, i) for i in range(6)]
        pairs = set(zip(world.clusters, [each.cluster for each in learners], strict=True))
        assert len(pairs) == 2 and len({model for _, model in pairs}) == 2
        observed = world.observer.metrics.latest("cluster")
        assert [observed[client.name] for client in world.clients] == [each.cluster for each in learners]


def test_who_was_never_sampled_is_judged_by_the_model_that_fits_it_best() -> None:
    few = ("protocol.fraction=0.17", 'protocol.broadcast="all"', "run.duration=12 s")
    with ran(*WORLD, *few, "training.learning_rate=0.5", "protocol.local_steps=10") as world:
        others: list[Any] = [each for each in (learner(world, i) for i in range(6)) if not each.sampled]  # type: ignore[attr-defined]
        models = [model.numpy().astype(np.float64) for model in server(world).models]
        assert len(others) >= 2
        for one in others:
            images, labels = own_data(world, int(one.name[-1]))
            losses = [loss(images.flatten(1).numpy(), labels.numpy(), model) for model in models]
            assert one.cluster == int(np.argmin(losses))
        assert {one.cluster for one in others} != {0}


def test_only_random_numbers_get_another_sign() -> None:
    """Variances of batch norms must not, nor weights that are all the same."""
    initial = torch.tensor([0.3, -0.2, 1.0, 1.0, 1.0, 0.0, 0.0, 0.7])
    found = with_signs(initial, -torch.ones(8))
    torch.testing.assert_close(found, torch.tensor([-0.3, 0.2, 1.0, 1.0, 1.0, 0.0, 0.0, -0.7]))


def test_a_batch_norm_keeps_its_variances_and_weights() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(4, 3), BatchNorm(3))
    initial = torch.cat([each.detach().flatten() for each in network.parameters()])
    found = with_signs(initial, -torch.ones_like(initial))
    torch.testing.assert_close(found[:15], -initial[:15])
    torch.testing.assert_close(found[15:], initial[15:])


def test_nobody_chooses_a_model_that_has_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = IFCAServer.setup

    def broken(made: IFCAServer) -> None:
        setup(made)
        made.models = (float("nan") * made.models[0], *made.models[1:])

    monkeypatch.setattr(IFCAServer, "setup", broken)
    with ran(*WORLD, "run.iterations=2", "run.duration=1 min") as world:
        learners: list[Any] = [learner(world, i) for i in range(6)]
        assert all(each.cluster > 0 for each in learners)
        assert np.isfinite(params(world)).all()
