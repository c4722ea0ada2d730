"""Clustered federated learning: the best parting, when there is one, and how others find their places."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from protocols.federated.clustered_fl import Cluster, bipartition, cosines
from sim.core.simulation import Simulation
from tests.protocols.worlds import QUADRATIC, churn, messages, optima, params, ran

CFL = ("protocol.name=clustered-fl", "protocol.local_steps=2", "protocol.patience=3 s", "clients.count=6")


def server(world: Simulation) -> Any:
    return world.supervisor.running["server"]


def places(world: Simulation) -> list[Cluster]:
    return [server(world).cluster_of(client.name) for client in world.clients]


def best(similarity: np.ndarray) -> float:
    """The smallest largest similarity across, of all ways to part n clients."""
    count = len(similarity)
    across = []
    for size in range(1, count // 2 + 1):
        for chosen in combinations(range(count), size):
            others = [i for i in range(count) if i not in chosen]
            across.append(float(similarity[np.ix_(list(chosen), others)].max()))
    return min(across)


@given(st.integers(2, 7).flatmap(lambda n: arrays(np.float64, (n, 3), elements=st.floats(-1, 1))))
def test_no_other_parting_has_a_smaller_largest_similarity_across(updates: np.ndarray) -> None:
    similarity = cosines(updates)
    first, second, largest = bipartition(similarity)
    assert sorted(first + second) == list(range(len(updates))) and first and second
    assert similarity[np.ix_(first, second)].max() == largest == best(similarity)


def test_cosines() -> None:
    rows = np.array([[3.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    found = cosines(rows)
    np.testing.assert_allclose(np.diag(found), [1, 1, 1, 0, 1])
    np.testing.assert_allclose(found[0], [1, 0, -1, 0, np.sqrt(0.5)])


def test_before_the_parting_it_is_federated_averaging() -> None:
    ends = ("data.clusters=2", "run.iterations=3", "run.duration=1 min", "protocol.stationary=0")
    with (
        ran(QUADRATIC, *CFL, *ends) as cfl,
        ran(QUADRATIC, *CFL, *ends[:3], "protocol.name=fedavg") as averaged,
    ):
        np.testing.assert_allclose(params(cfl), params(averaged), atol=1e-6)


@pytest.mark.parametrize("clusters", [2, 3])
def test_who_pulls_apart_is_parted_and_nobody_else(clusters: int) -> None:
    with ran(
        QUADRATIC, *CFL, f"data.clusters={clusters}", "run.duration=120 s", 'protocol.broadcast="all"'
    ) as world:
        found = places(world)
        assert world.clusters is not None
        together = [[mine is other for other in found] for mine in found]
        truth = [[mine == other for other in world.clusters] for mine in world.clusters]
        assert together == truth
        _, mu = optima(world)
        np.testing.assert_allclose(params(world), mu, atol=1e-2)


def test_one_cluster_is_never_parted() -> None:
    with ran(QUADRATIC, *CFL, "data.clusters=1", "run.duration=120 s") as world:
        assert len(set(map(id, places(world)))) == 1


def test_parts_that_are_alike_stay_together() -> None:
    with ran(QUADRATIC, *CFL, "data.clusters=2", "run.duration=60 s", "protocol.separation=1.0") as world:
        assert len(set(map(id, places(world)))) == 1


def test_a_newcomer_finds_its_cluster_by_the_partings_before_it_came() -> None:
    text = QUADRATIC + churn("join", 5, "90 s")
    with ran(text, *CFL, "data.clusters=3", "run.duration=120 s") as world:
        found = places(world)
        assert found[5] is found[4] is not found[3]
        assert found[5] is not server(world).first
        tasks = [row[0] for row in messages(world, "Assignment") if row[2] == "client-5"]
        assert len(tasks) > 4


def test_clients_without_a_budget_part_nobody() -> None:
    """That the average hardly moves is due to them; those that train do not pull apart."""
    with ran(QUADRATIC, *CFL, "data.clusters=1") as world:
        of, names = server(world), [client.name for client in world.clients]
        update, none = of.vector(np.array([1.0, 0.0, 0.0])), of.vector(np.zeros(3))
        fresh = Cluster(of.params)
        of.advance(fresh, names, [update] * 6, [1] * 6)
        of.done = set(names[1:])
        of.advance(fresh, names, [update, *[none] * 5], [1] * 6)
        assert not fresh.parts
        of.done = set()
        of.advance(fresh, names, [update, *[none] * 5], [1] * 6)
        assert len(fresh.parts) == 2


@pytest.mark.parametrize(
    ("average", "change", "splits"), [(0.3, 1.7, True), (0.5, 1.7, False), (0.3, 1.5, False)]
)
def test_criteria_of_fedem(average: float, change: float, splits: bool) -> None:
    """The norm of a client's update is above 1.6 in each case; only its largest parameter counts."""
    with ran(QUADRATIC, *CFL, "data.clusters=1", "protocol.criteria=fedem") as world:
        of, names = server(world), [client.name for client in world.clients]
        rest = np.array([average * 6, 0.0, 0.0]) / 6
        updates = [rest + sign * np.array([0.0, change, change * 0.9]) for sign in (1, -1, 1, -1, 1, -1)]
        of.done = set()
        cluster = Cluster(of.params)
        of.advance(cluster, names, [of.vector(update) for update in updates], [1] * 6)
        assert bool(cluster.parts) is splits


def test_a_single_client_is_not_split() -> None:
    with ran(QUADRATIC, *CFL, "data.clusters=1", "protocol.smallest=1") as world:
        of, cluster = server(world), Cluster(server(world).params, longest=10.0)
        of.done = set()
        of.settings = of.settings.model_copy(update={"progress": 0.01})
        of.advance(cluster, ["client-0"], [of.vector(np.array([1.0, 0.0, 0.0]))], [1])
        assert not cluster.parts
