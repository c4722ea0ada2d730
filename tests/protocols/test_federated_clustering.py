"""Federated clustering: the center of the nearest, rounds against numpy, and the graph that it learns."""

import numpy as np
import pytest
import torch

from protocols.decentralized.federated_clustering import threshold_clustering
from sim.core.simulation import Simulation
from tests.protocols.worlds import QUADRATIC, churn, optima, params, ran

FC = (QUADRATIC, "protocol.name=federated-clustering", "protocol.patience=20 s", "data.clusters=2")


def literally(points: np.ndarray, within: int, sweeps: int) -> tuple[np.ndarray, np.ndarray]:
    centre = points[0]
    for _ in range(sweeps):
        far = np.linalg.norm(points - centre, axis=1)
        near = far <= np.sort(far)[within - 1]
        centre = sum(point if close else centre for point, close in zip(points, near, strict=True)) / len(
            points
        )
    return centre, near


@pytest.mark.parametrize(("within", "sweeps"), [(1, 3), (3, 1), (3, 8), (7, 5)])
def test_the_centre_of_the_nearest(within: int, sweeps: int) -> None:
    points = np.random.default_rng(2).standard_normal((7, 4))
    centre, *near = threshold_clustering(torch.ones(()), *torch.tensor(points), within=within, sweeps=sweeps)
    expected, close = literally(points, within, sweeps)
    np.testing.assert_allclose(centre.numpy(), expected, rtol=1e-12)
    assert [bool(each) for each in near] == close.tolist()


def test_two_heaps_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(3.0, 0.1, (4, 5)), rng.normal(-3.0, 0.1, (4, 5))])
    centre, *near = threshold_clustering(torch.ones(()), *torch.tensor(points), within=4, sweeps=30)
    assert [float(each) for each in near] == [1.0] * 4 + [0.0] * 4
    np.testing.assert_allclose(centre.numpy(), points[:4].mean(axis=0), atol=1e-6)


def graph(world: Simulation) -> np.ndarray:
    matrix = np.zeros((len(world.clients),) * 2)
    for (i, j), weight in world.observer.metrics.weights().items():
        matrix[i, j] = weight
    return matrix


def test_each_round_is_the_papers() -> None:
    with ran(*FC, "run.iterations=5", "run.duration=5 min", "run.evaluate_every=5 min") as world:
        a, mu = optima(world)
        x = np.zeros((4, 3))
        for _ in range(5):
            moved = []
            for i in range(4):
                order = [i, *[j for j in range(4) if j != i]]
                moved.append(literally(-0.1 * (a * (x[i] - mu))[order], 2, 10)[0])
            x = x + np.stack(moved)
        np.testing.assert_allclose(params(world), x, atol=1e-6)
        assert [client.work.steps for client in world.clients] == [5 * 4] * 4


def test_the_graph_is_that_of_the_clusters_and_a_newcomer_is_in_it() -> None:
    text = FC[0] + churn("join", 5, "30 s")
    with ran(text, *FC[1:], "clients.count=6", "run.duration=90 s", "run.evaluate_every=90 s") as world:
        same = np.equal.outer(np.arange(6) // 3, np.arange(6) // 3) & ~np.eye(6, dtype=bool)
        assert (graph(world) > 0.5).tolist() == same.tolist()
        _, mu = optima(world)
        assert np.linalg.norm(params(world) - mu, axis=1).max() < 1.0
