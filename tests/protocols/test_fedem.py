"""FedEM against its algorithm in numpy, on logistic regression with whole batches."""

from typing import Any

import numpy as np
import torch

from protocols.federated.fedem import responsibilities
from sim.core.simulation import Simulation
from tests.protocols.decoupled import own_data
from tests.protocols.worlds import DIGITS, at, learner, ran

WORLD = (
    DIGITS,
    "protocol.name=fedem",
    "protocol.models=3",
    "protocol.local_steps=2",
    "training.batch_size=8",
)


def log_likelihoods(x: np.ndarray, y: np.ndarray, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each sample [n], and all probabilities [n, 10]; flat: weights [10, d], then biases [10]."""
    d = x.shape[1]
    logits = x @ flat[: 10 * d].reshape(10, d).T + flat[10 * d :]
    logits = logits - logits.max(axis=1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logs[np.arange(len(y)), y], np.exp(logs)


def weighted_gradient(x: np.ndarray, y: np.ndarray, flat: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Of the mean of weight times cross-entropy."""
    _, p = log_likelihoods(x, y, flat)
    p[np.arange(len(y)), y] -= 1
    p *= weights[:, None] / len(y)
    return np.concatenate([(p.T @ x).ravel(), p.sum(axis=0)])


def test_responsibilities_are_bayes() -> None:
    rng = np.random.default_rng(0)
    shares, losses = rng.dirichlet(np.ones(3)), rng.exponential(size=(3, 5))
    found, *parts = responsibilities(torch.tensor(shares), *torch.tensor(losses))
    joint = shares[:, None] * np.exp(-losses)
    expected = joint / joint.sum(axis=0)
    np.testing.assert_allclose(torch.stack(parts).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(found.numpy(), expected.mean(axis=1), rtol=1e-12)


def test_e_and_m_steps_never_lower_the_likelihood() -> None:
    """Of fixed models, over several E-steps."""
    losses = np.random.default_rng(1).exponential(size=(4, 30)) * 3
    shares, bounds = torch.full((4,), 0.25, dtype=torch.float64), []
    for _ in range(10):
        bounds.append(np.log(shares.numpy() @ np.exp(-losses)).sum())
        shares = responsibilities(shares, *torch.tensor(losses))[0]
    assert (np.diff(bounds) > -1e-12).all() and bounds[-1] > bounds[0]


def test_each_round_is_the_papers() -> None:
    found: list[list[tuple[np.ndarray, ...]]] = []

    def looking(simulation: Simulation) -> None:
        def models() -> tuple[np.ndarray, ...]:
            server: Any = simulation.supervisor.running["server"]
            return tuple(model.numpy() for model in server.models)

        found.append(at(simulation, 0.01, models))

    with ran(*WORLD, "run.iterations=4", "run.duration=2 min", prepare=looking) as world:
        owned = [own_data(world, i) for i in range(6)]
        samples = [(images.flatten(1).numpy(), labels.numpy()) for images, labels in owned]
        models = [model.astype(np.float64) for model in found[0][0]]
        shares = np.full((6, 3), 1 / 3)
        for _ in range(4):
            received, trained = models, []
            for i, own in enumerate(samples):
                joint = shares[i][:, None] * np.exp([log_likelihoods(*own, model)[0] for model in models])
                parts = joint / joint.sum(axis=0)
                shares[i] = parts.mean(axis=1)
                mine = list(models)
                for _ in range(2):
                    mine = [
                        model - 0.1 * weighted_gradient(*own, model, part)
                        for model, part in zip(mine, parts, strict=True)
                    ]
                trained.append(mine)
            models = [np.mean([mine[m] for mine in trained], axis=0) for m in range(3)]
        for i in range(6):
            one: Any = learner(world, i)
            np.testing.assert_allclose(one.shares.numpy(), shares[i], atol=1e-4)
            for model, expected in zip(one.models, received, strict=True):
                np.testing.assert_allclose(model.numpy(), expected, atol=1e-5)
        assert [client.work.steps for client in world.clients] == [4 * 3 * 2] * 6


def test_clusters_mix_in_their_own_ways() -> None:
    more = ("data.partition.samples_per_client=40", "protocol.models=2", "protocol.local_steps=10")
    times = ("devices.step_time=31.25 ms", "run.duration=30 s", "training.learning_rate=0.3")
    with ran(*WORLD, *more, *times) as world:
        assert world.clusters is not None
        first = np.array([learner(world, i).shares.numpy()[0] for i in range(6)])  # type: ignore[attr-defined]
        clusters = np.array(world.clusters)
        means = [first[clusters == k].mean() for k in (0, 1)]
        print(first)
        assert abs(means[0] - means[1]) > 0.5


def test_after_a_round_all_may_be_told() -> None:
    told = ("protocol.fraction=0.17", 'protocol.broadcast="all"')
    with ran(DIGITS, "protocol.name=fedem", "protocol.local_steps=1", *told) as world:
        learners = [learner(world, i) for i in range(6)]
        assert min(one.iterations for one in learners) == 0
        assert all(len(one.models) == 2 for one in learners)  # type: ignore[attr-defined]
