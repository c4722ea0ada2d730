"""FLT: distances, centroids and clusters against other ways to them, rounds against numpy, and newcomers."""

import subprocess
import sys
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from threadpoolctl import threadpool_limits

from protocols.federated.flt import clusters_by_linkage, encode_samples, k_means_centroids, matching_distance
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.protocols.decoupled import own_data
from tests.protocols.test_fedavg import softmax_gradient
from tests.protocols.weather import MINUTES, WEATHER
from tests.protocols.worlds import DIGITS, QUADRATIC, churn, learner, make, messages, params, ran
from tests.simulation.test_language_models import run

TWO_KINDS = 'data.partition={kind="disjoint-clusters", clusters=2, samples_per_client=20}'
# Samples are encoded in two seconds.
FLT = (
    *(DIGITS, "protocol.name=flt", "protocol.patience=4 s", TWO_KINDS),
    *("protocol.local_steps=2", "protocol.embedding=16", "protocol.centroids=5"),
)
POINTS = st.integers(1, 4).flatmap(lambda n: arrays(np.float64, (n, 2), elements=st.floats(-3, 3)))


def server(world: Simulation) -> Any:
    return world.supervisor.running["server"]


def literally(one: np.ndarray, other: np.ndarray) -> float:
    """The distance, by all ways to match."""
    few, many = sorted((one, other), key=len)
    chosen = [many[list(order)] for order in permutations(range(len(many)), len(few))]
    return min([((few - each) ** 2).sum(axis=1).mean() for each in chosen])


@given(POINTS, POINTS)
def test_the_distance_is_that_of_the_best_matching(one: np.ndarray, other: np.ndarray) -> None:
    assert matching_distance(one, other) == pytest.approx(literally(one, other))
    assert matching_distance(other, one) == pytest.approx(literally(one, other))


@pytest.mark.parametrize("seed", range(4))
def test_centroids_are_those_of_the_best_parting(seed: int) -> None:
    """Of seven points in two parts all partings can be tried."""
    points = np.random.default_rng(seed).normal(size=(7, 3))
    found = k_means_centroids(points, 2, seed)

    def spread(part: tuple[int, ...]) -> float:
        parts = points[list(part)], np.delete(points, part, axis=0)
        return float(sum([((each - each.mean(axis=0)) ** 2).sum() for each in parts]))

    best = min([part for size in (1, 2, 3) for part in combinations(range(7), size)], key=spread)
    means = [points[list(best)].mean(axis=0), np.delete(points, best, axis=0).mean(axis=0)]
    assert literally(found, np.stack(means)) < 1e-20


def test_there_are_no_more_centroids_than_different_samples() -> None:
    assert sorted(k_means_centroids([[1.0], [5.0], [1.0]], 5, 0).tolist()) == [[1.0], [5.0]]


def test_centroids_do_not_depend_on_the_number_of_threads() -> None:
    """Several of scikit-learn's add up parts of 256 samples as they come."""
    points, told = np.random.default_rng(0).normal(size=(3000, 16)), set()
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            told.add(k_means_centroids(points, 5, 0).tobytes())
    assert len(told) == 1


def joined(distances: np.ndarray, goes_on: Any) -> set[frozenset[int]]:
    """Average linkage, written out: the two nearest clusters are joined while `goes_on(distance, count)`."""
    parts = [frozenset([i]) for i in range(len(distances))]
    while len(parts) > 1:
        pairs = [(distances[np.ix_(sorted(a), sorted(b))].mean(), a, b) for a, b in combinations(parts, 2)]
        nearest, a, b = min(pairs, key=lambda pair: pair[0])
        if not goes_on(nearest, len(parts)):
            break
        parts = [each for each in parts if each not in (a, b)] + [a | b]
    return set(parts)


def parts_of(labels: list[int]) -> set[frozenset[int]]:
    return {frozenset([i for i, each in enumerate(labels) if each == label]) for label in labels}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 2, 4, 9])
def test_clusters_are_those_of_average_linkage(seed: int, count: int) -> None:
    points = np.random.default_rng(seed).normal(size=(7, 2))
    distances = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
    of_pairs = distances[np.triu_indices(7, k=1)]
    found = clusters_by_linkage(of_pairs, count)
    assert parts_of(found) == joined(distances, lambda nearest, parts: parts > count)
    assert list(dict.fromkeys(found)) == list(range(max(found) + 1))
    share = 0.1 * count
    by_share = clusters_by_linkage(of_pairs, 1, share)
    assert parts_of(by_share) == joined(distances, lambda nearest, parts: nearest <= share * distances.max())


def test_one_client_is_a_cluster() -> None:
    assert clusters_by_linkage([], 3) == [0]


def test_the_encoder_is_a_matrix() -> None:
    rng = np.random.default_rng(1)
    samples, matrix = rng.normal(size=(5, 6)), rng.normal(size=(6, 3))
    found = encode_samples(torch.tensor(samples).flatten(), torch.tensor(matrix).flatten(), 3)
    np.testing.assert_allclose(found.reshape(5, 3), samples @ matrix)


@pytest.mark.parametrize("clusters", [2, 3])
def test_each_round_is_the_papers(clusters: int) -> None:
    """Clients with unequal numbers of samples, whole batches; all from the encoder that was sent."""
    uneven = ('data.partition={kind="dirichlet", alpha=0.3}', "training.batch_size=2000")
    times = ("run.iterations=4", "run.duration=10 min", "protocol.patience=2 min", "protocol.embedding=64")
    with ran(*FLT, *uneven, *times, f"protocol.clusters={clusters}") as world:
        owned = [own_data(world, i) for i in range(6)]
        samples = [(x.flatten(1).numpy().astype(float), y.numpy()) for x, y in owned]
        matrix = server(world).encoder.numpy().reshape(64, 64)
        assert matrix.std() == pytest.approx(1 / 8, rel=0.05)
        told = [server(world).centroids[client.name] for client in world.clients]
        for (x, _), centroids in zip(samples, told, strict=True):  # no step of Lloyd's moves them
            z = x @ matrix
            own = ((z[:, None] - centroids[None]) ** 2).sum(axis=-1).argmin(axis=1)
            np.testing.assert_allclose(centroids, [z[own == k].mean(axis=0) for k in range(5)], atol=1e-4)
        distances = np.array([[literally(a, b) for b in told] for a in told])
        expected = joined(distances, lambda nearest, parts: parts > clusters)
        learners: list[Any] = [learner(world, i) for i in range(6)]
        assert {frozenset([int(name[-1]) for name in each.members]) for each in learners} == expected
        models = {part: learners[0].compute.initial().numpy().astype(float) for part in expected}
        for _ in range(4):
            received = dict(models)
            for part, model in received.items():
                trained, counts = [], []
                for i in part:
                    moved = model
                    for _ in range(2):
                        moved = moved - 0.1 * softmax_gradient(*samples[i], moved)
                    trained.append(moved)
                    counts.append(len(samples[i][1]))
                models[part] = np.average(trained, axis=0, weights=counts)
        assert len({*counts}) > 1 or clusters == 3
        rows = [next(received[part] for part in expected if i in part) for i in range(6)]
        np.testing.assert_allclose(params(world), np.stack(rows), atol=1e-5)


def test_the_true_clusters_are_found_and_are_the_graph() -> None:
    with ran(*FLT, "run.duration=30 s") as world:
        assert world.clusters is not None
        same = {(i, j) for i, j in permutations(range(6), 2) if world.clusters[i] == world.clusters[j]}
        assert world.observer.metrics.weights() == dict.fromkeys(same, 1.0)


def test_a_threshold_finds_them_without_their_number() -> None:
    with ran(*FLT, "run.duration=30 s", "protocol.threshold=0.6", "protocol.clusters=5") as world:
        assert list(server(world).assigned.values()) == [0, 0, 0, 1, 1, 1]


def test_messages_are_those_of_mapls_table_7() -> None:
    with ran(*FLT, "run.iterations=2", "run.duration=5 min") as world:
        table = world.trace.to_table().to_pylist()
        for kind, numbers in (("Encode", 64 * 16), ("Centroids", 5 * 16)):
            sizes = [row["bytes"] for row in table if (row["type"], row["event"]) == (kind, "sent")]
            assert len(sizes) == 6
            assert 4 * numbers <= min(sizes) and max(sizes) < 4 * numbers + 200


def test_there_are_no_more_models_than_clients() -> None:
    with ran(*FLT, "run.duration=10 s", "protocol.clusters=60") as world:
        assert list(server(world).assigned.values()) == list(range(6))
        assert server(world).settings.own_numbers(10, 6) == 60 == 10 * len(server(world).models)


def test_a_newcomer_goes_to_the_cluster_it_is_like() -> None:
    text = DIGITS + churn("join", 5, "20 s")
    with ran(text, *FLT[1:], "run.duration=60 s") as world:
        assert server(world).assigned["client-5"] == server(world).assigned["client-4"] == 1
        assert set(learner(world, 5).weights() or {}) == {"client-3", "client-4"}
        assert len([row for row in messages(world, "Encode") if row[2] == "client-5"]) == 1
        np.testing.assert_array_equal(params(world)[5], params(world)[4])


def test_who_comes_back_afresh_is_not_asked_again() -> None:
    text = DIGITS + churn("crash", 1, "20 s") + churn("rejoin", 1, "30 s", "fresh")
    with ran(text, *FLT[1:], "run.duration=60 s") as world:
        assert len([row for row in messages(world, "Encode") if row[2] == "client-1"]) == 1
        np.testing.assert_array_equal(params(world)[1], params(world)[0])


@pytest.mark.parametrize("state", ["keep", "fresh"])
def test_a_server_that_was_away_knows_the_clusters_again(state: str) -> None:
    """One that has lost all asks again, and clients say what they have found before."""
    text = DIGITS + f'\n[[server.crash]]\nat = "20.1 s"\nback = "24.1 s"\nstate = "{state}"\n'
    with ran(text, *FLT[1:], "run.duration=60 s") as world:
        assert list(server(world).assigned.values()) == [0, 0, 0, 1, 1, 1]
        told_at = {row[0] for row in messages(world, "Centroids")}
        assert len(told_at) == (1 if state == "keep" else 2)
        assert min([client.work.steps for client in world.clients]) > 20
        again_s = [row[0] for row in messages(world, "Encode") if row[0] > 1.0]
        assert not again_s or max(told_at) == again_s[0] + 0.25


def test_with_a_share_of_the_clients_all_are_asked_once() -> None:
    with ran(*FLT, "run.duration=60 s", "protocol.fraction=0.34", 'protocol.broadcast="all"') as world:
        assert [row[2] for row in messages(world, "Encode")] == [client.name for client in world.clients]
        assert {len(learner(world, i).members) for i in range(6)} == {3}  # type: ignore[attr-defined]


@pytest.mark.parametrize("weather", WEATHER)
def test_it_goes_on_in_bad_weather(weather: str) -> None:
    """All end in their true clusters, also who was late; the run ends and nobody waits for ever."""
    text, *options = WEATHER[weather]
    if weather == "straggler":
        options.append("protocol.patience=30 s")
    with ran(DIGITS + text, *FLT[1:], *MINUTES, *options) as world:
        assert world.loop.time() == 180.0
        up = world.clients_up
        assert len(up) == (5 if weather == "churn" else 6) and world.clusters is not None
        assert min([client.actor.iterations for client in up if client.actor]) >= 5
        found = server(world).assigned
        pairs = {(world.clusters[client.index], found[client.name]) for client in up}
        assert len(pairs) == 2 == len({cluster for _, cluster in pairs})


def test_who_needs_longer_than_the_server_waits_is_there_later() -> None:
    """Encoding takes it 40 s, of which the server waits for 4; it is done once."""
    slow, *_ = WEATHER["straggler"]
    with ran(DIGITS + slow, *FLT[1:], *MINUTES) as world:
        assert server(world).assigned["client-2"] == server(world).assigned["client-0"]
        encoded_at = [row[0] for row in messages(world, "Centroids") if row[1] == "client-2"]
        assert encoded_at[0] == 0.25 + 40.0


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (QUADRATIC, ()),
        (QUADRATIC, ('data={name="synthetic-regression"}', "model.name=logistic-regression")),
    ],
    ids=["quadratic", "regression"],
)
def test_what_has_no_classes_is_refused(text: str, options: tuple[str, ...]) -> None:
    with pytest.raises(
        UserError, match=r'data\.task = .*by the classes of their samples, .*must be "classification"'
    ):
        make(text, *options, "protocol.name=flt")


def test_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'data\.task = "language".*must be "classification"'):
        run(tmp_path, "protocol={name='flt'}")


@pytest.mark.long
def test_nothing_is_drawn_that_the_seed_does_not_set() -> None:
    """In a new process: scikit-learn draws from `random` while it is imported, which must be before a run."""
    program = (
        "from protocols.federated import flt\n"
        "from sim.run.foreign_draws import foreign_draws\n"
        "with foreign_draws([]) as found:\n"
        "    centroids = flt.k_means_centroids([[0.0], [1.0], [5.0]], 2, 0)\n"
        "    flt.clusters_by_linkage([flt.matching_distance(centroids, centroids)], 2)\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
