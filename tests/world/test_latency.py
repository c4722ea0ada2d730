"""Latencies by nodes: exact values, places on the globe, and nodes that nobody else can change."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.settings.tables import tagged
from sim.files.data_folder import DataFolder
from sim.kernel.random import RandomStream
from sim.world.distributions import KINDS as DISTRIBUTIONS
from sim.world.latency.cities import CITIES, draw_city
from sim.world.latency.kinds import Latency
from sim.world.latency.measured import one_way_seconds, sampled_nodes
from sim.world.latency.nodes import NodeLatency
from sim.world.latency.positions import EARTH_RADIUS_M, fibre_seconds, great_circle_m
from sim.world.network_model import ConnectionModel
from sim.world.participants import Participants
from tests.lists import require_listed
from tests.world.networks import World

MATRIX = np.array([[[0.0, 0.5, 2.0], [1.0, 0.25, 4.0], [8.0, 16.0, 0.0]]])
ROWS = {"a": 0, "b": 1, "c": 2, "d": 1}


def place(name: str) -> tuple[float, float]:
    return CITIES[name].latitude, CITIES[name].longitude


# -- Kinds

JITTERS = ({}, {"jitter": 0.5})
KINDS: dict[str, tuple[dict[str, Any], ...]] = {
    "matrix": tuple({"file": "matrix.csv", "unit": "s", **jitter} for jitter in JITTERS),
    "positions": tuple({"floor": "1 ms", **jitter} for jitter in JITTERS),
    "table": tuple({"file": "table.csv", **jitter} for jitter in JITTERS),
    "trace": tuple({"source": "seattle", **jitter} for jitter in JITTERS),
}
"""Keys of each kind: with random numbers, and without, if it has such a form."""
PAIR = ("client-0", "client-1")


def test_every_kind_is_covered() -> None:
    by_node = tagged(Latency).keys() - {tag for kind in DISTRIBUTIONS for tag in tagged(kind)}
    require_listed(by_node, KINDS, f"KINDS in {__file__}, with its keys")


@pytest.mark.parametrize(("kind", "keys"), [(kind, keys) for kind in KINDS for keys in KINDS[kind]], ids=str)
def test_a_kind_has_a_random_stream_if_it_draws(
    kind: str, keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("matrix.csv").write_text("0,1\n2,0\n", encoding="utf-8")
    Path("table.csv").write_text("time_s,latency_ms\n0,20\n1,30\n2,0\n", encoding="utf-8")
    round_trips_s = np.array([[0.0, 0.5], [0.25, 0.0]])
    Path("net-latency").mkdir()
    np.savez(
        "net-latency/seattle_rtt_s.npz",
        rtt_s_median=round_trips_s,
        rtt_centiseconds=100 * round_trips_s[None],
    )
    participants = Participants(3, PAIR, (), None, DataFolder(tmp_path))
    section = tagged(Latency)[kind].model_validate({"kind": kind, **keys})
    model = ConnectionModel(section.build("network.latency", participants))
    found = {model.latency_s(PAIR, 0.0, RandomStream(seed)) for seed in range(8)}
    assert all(0.0 < latency_s < 60.0 for latency_s in found)
    assert (len(found) > 1) == (model.latency_key(3, "latency", PAIR) is not None)


def test_a_latency_that_draws_and_states_no_randomness_is_refused() -> None:
    """It would use the stream of any other pair, or of none."""

    class Wrong:
        has_randomness = False

        def sample(self, pair: tuple[str, str], time_s: float, draws: RandomStream) -> float:
            return draws.exponential()

    world = World(latency=Wrong())
    with pytest.raises(
        TypeError, match=r"has_randomness is False: see PairLatency in sim/world/latency/nodes"
    ):
        world.send(0.0, "ab", 1)
        world.run()


# -- Matrices


def test_each_ordered_pair_has_its_own_latency() -> None:
    world = World(latency=NodeLatency(MATRIX, ROWS))
    for number, pair in enumerate(["ab", "ba", "ac", "ca", "bd"]):
        world.send(0.0, pair, number)
    assert world.run().received == [
        (0.25, "d", 4),
        (0.5, "b", 0),
        (1.0, "a", 1),
        (2.0, "c", 2),
        (8.0, "a", 3),
    ]


def test_slices_follow_each_other_and_start_again() -> None:
    latency = NodeLatency(
        np.array([[[0.0, s], [s, 0.0]] for s in (1.0, 2.0, 3.0)]), {"a": 0, "b": 1}, slice_s=10.0
    )
    times_s = (0.0, 9.5, 10.0, 29.0, 30.0, 49.0)
    found = [latency.sample(("a", "b"), time_s, RandomStream(1)) for time_s in times_s]
    assert found == [1.0, 1.0, 2.0, 3.0, 1.0, 2.0]


def test_jitter_is_a_factor_with_median_one() -> None:
    latency = NodeLatency(MATRIX, ROWS, jitter=0.5)
    assert latency.sample(("a", "b"), 0.0, RandomStream(4)) == 0.5 * math.exp(0.5 * RandomStream(4).normal())
    draws = RandomStream(4)
    values = sorted(latency.sample(("a", "b"), 0.0, draws) for _ in range(4001))
    assert values[2000] == pytest.approx(0.5, rel=0.04)


# -- Traces


def test_half_a_round_trip_and_two_actors_on_one_node_as_near_as_the_nearest_two() -> None:
    round_trips_s = np.array([[[7.0, 4.0], [6.0, 9.0]], [[0.0, 2.0], [6.0, 0.0]]])
    expected = [[[1.0, 2.0], [3.0, 1.0]], [[1.0, 1.0], [3.0, 1.0]]]
    assert one_way_seconds(round_trips_s, round_trips_s).tolist() == expected


def test_what_was_not_measured_is_the_median_of_what_was() -> None:
    slices_s = np.array([[[0.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 0.0]], [[0.0, 8.0], [0.0, 0.0]]])
    medians_s = np.array([[[0.0, 0.0], [0.5, 0.0]]])
    assert one_way_seconds(medians_s, slices_s).tolist() == [[[0.25, 2.5], [0.25, 0.25]]]
    one_way_s = one_way_seconds(slices_s, slices_s)
    assert one_way_s[:, 0, 1].tolist() == [2.5, 1.0, 4.0]
    assert one_way_s[:, 1, 0].tolist() == [1.0] * 3, "never measured: as near as the nearest two"


def names(count: int, kind: str = "client") -> list[str]:
    return [f"{kind}-{number}" for number in range(count)]


@given(st.integers(0, 99), st.integers(1, 40), st.integers(0, 100), st.integers(0, 100), st.integers(0, 5))
def test_further_clients_and_servers_move_nobody(
    seed: int, nodes: int, few: int, more: int, servers: int
) -> None:
    chosen = sampled_nodes(seed, names(few), names(servers, "server"), nodes)
    all_chosen = sampled_nodes(seed, names(few + more), names(servers + 1, "server"), nodes)
    assert chosen.items() <= all_chosen.items()
    assert set(chosen.values()) <= set(range(nodes))


@given(st.integers(0, 99), st.integers(1, 40), st.integers(0, 100))
def test_every_node_is_taken_once_before_any_is_taken_again(seed: int, nodes: int, clients: int) -> None:
    taken = Counter(sampled_nodes(seed, names(clients), [], nodes).values())
    assert {taken[node] for node in range(nodes)} <= {clients // nodes, -(-clients // nodes)}
    servers = min(nodes, 3)
    together = sampled_nodes(seed, names(nodes - servers), names(servers, "server"), nodes)
    assert sorted(together.values()) == list(range(nodes))


def test_other_seeds_choose_other_nodes() -> None:
    assert sampled_nodes(1, names(5), [], 490) != sampled_nodes(2, names(5), [], 490)


# -- Places


@pytest.mark.parametrize(
    ("one", "other", "km"),
    [("London", "New York", 5570), ("Tokyo", "Sydney", 7820), ("Paris", "Singapore", 10_740)],
)
def test_great_circles_between_cities(one: str, other: str, km: float) -> None:
    assert great_circle_m(place(one), place(other)) == pytest.approx(km * 1000, rel=0.01)


def test_great_circles_between_poles_and_on_the_equator() -> None:
    half = math.pi * EARTH_RADIUS_M
    assert great_circle_m((90.0, 0.0), (-90.0, 77.0)) == pytest.approx(half)
    assert great_circle_m((0.0, -170.0), (0.0, 100.0)) == pytest.approx(half / 2)


latitudes, longitudes = st.floats(-90, 90), st.floats(-180, 180)


@given(st.tuples(latitudes, longitudes), st.tuples(latitudes, longitudes))
def test_a_great_circle_is_the_same_both_ways_and_half_the_globe_at_most(
    one: tuple[float, float], other: tuple[float, float]
) -> None:
    distance_m = great_circle_m(one, other)
    assert distance_m == pytest.approx(great_circle_m(other, one), abs=1e-3)
    assert 0 <= distance_m <= math.pi * EARTH_RADIUS_M * (1 + 1e-12)


def test_light_in_fibre_takes_28_ms_from_london_to_new_york() -> None:
    seconds = fibre_seconds([place("London"), place("New York")], floor_s=0.001, stretch=1.5)
    assert seconds.shape == (1, 2, 2)
    # 5570 km at 199,862 km/s
    assert seconds[0, 0, 1] == seconds[0, 1, 0] == pytest.approx(0.001 + 1.5 * 0.02787, rel=0.01)
    assert seconds[0, 0, 0] == 0.001


def test_cities_are_drawn_by_population() -> None:
    drawn = Counter(draw_city(RandomStream(1, "place", number)) for number in range(20_000))
    total = sum(city.millions for city in CITIES.values())
    for name, city in CITIES.items():
        assert drawn[name] / 20_000 == pytest.approx(city.millions / total, abs=0.009)  # four deviations
    assert set(drawn) == set(CITIES)
