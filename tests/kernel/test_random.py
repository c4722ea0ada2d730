"""Random streams: the same in every process, and independent of each other."""

import subprocess
import sys
from itertools import combinations
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.kernel.random import RandomStream, key, pair_key, splitmix64, splitmix64_array, stream

words = st.integers(0, 2**64 - 1)
names = st.lists(st.one_of(st.text(max_size=3), st.integers(-3, 300)), max_size=3)


def test_splitmix64_gives_the_published_numbers():
    # Of Vigna's reference implementation, seeded with 1234567.
    assert [splitmix64(1234567, counter) for counter in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(st.lists(st.tuples(words, words), min_size=1))
def test_the_vectorised_form_gives_the_same_numbers(pairs):
    keys, counters = np.array(pairs, np.uint64).T
    together = splitmix64_array(keys, counters)
    assert together.dtype == np.uint64
    assert together.tolist() == [splitmix64(*pair) for pair in pairs]


def test_the_vectorised_form_broadcasts():
    keys, counters = np.arange(3, dtype=np.uint64)[:, None], np.arange(4, dtype=np.uint64)
    expected = [[splitmix64(k, c) for c in range(4)] for k in range(3)]
    assert splitmix64_array(keys, counters).tolist() == expected
    assert splitmix64_array(np.uint64(5), np.uint64(2**64 - 1)).tolist() == [splitmix64(5, 2**64 - 1)]


def test_keys_are_the_same_in_every_process():
    code = (
        "from sim.kernel.random import *;"
        "print(key(1, 'latency', 'client-3', 7), stream(1, 'x').integers(2**63))"
    )
    fresh = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert fresh.stdout.split() == [
        str(key(1, "latency", "client-3", 7)),
        str(stream(1, "x").integers(2**63)),
    ]
    assert key(1, "latency", "client-3", 7) == 16867001897431314477  # for ever: old runs can be repeated


@given(st.tuples(st.integers(-3, 300), names), st.tuples(st.integers(-3, 300), names))
def test_names_have_the_same_key_only_if_they_are_equal(one, two):
    (seed_1, names_1), (seed_2, names_2) = one, two
    typed = [[(type(part), part) for part in (seed, *parts)] for seed, parts in (one, two)]
    assert (key(seed_1, *names_1) == key(seed_2, *names_2)) == (typed[0] == typed[1])


def test_names_do_not_run_into_each_other():
    keys = [key(1, *parts) for parts in (("ab", "c"), ("a", "bc"), ("abc",), ("1",), (1,), (1, 1), (11,), ())]
    assert len(set(keys)) == len(keys)
    assert key(1, np.int64(3)) == key(1, 3)
    for name in (1.0, None, b"bytes"):
        with pytest.raises(TypeError):
            key(1, name)


def test_a_stream_depends_on_its_own_name_only():
    first = stream(3, "speed", 1).random(4)
    stream(3, "speed", 2).random(100)
    np.random.random(3)
    assert (stream(3, "speed", 1).random(4) == first).all()
    streams = (stream(3, "speed", 1), stream(3, "speed", 2), stream(4, "speed", 1))
    assert len({tuple(each.random(2)) for each in streams}) == 3
    assert isinstance(stream(3).bit_generator, np.random.Philox)


def test_draws_repeat_and_do_not_depend_on_each_other():
    one, again, other = (
        RandomStream(1, "latency", "a", "b"),
        RandomStream(1, "latency", "a", "b"),
        RandomStream(1, "latency", "a", "c"),
    )
    first = [one.uniform() for _ in range(5)]
    assert [(again.uniform(), other.uniform())[0] for _ in range(5)] == first
    assert first[0] == (splitmix64(key(1, "latency", "a", "b"), 0) >> 11) / 2**53


def test_each_kind_of_draw_takes_one_number():
    reference = RandomStream(5)
    numbers = [reference.uniform() for _ in range(4)]
    mixed = RandomStream(5)
    mixed.normal()
    mixed.exponential()
    assert [mixed.uniform(), mixed.uniform()] == numbers[2:]
    assert repr(mixed).endswith("4 drawn>")


def test_the_extremes_of_a_draw_are_finite(monkeypatch):
    for bits in (0, 2**64 - 1):
        monkeypatch.setattr("sim.kernel.random.splitmix64", lambda key, counter, bits=bits: bits)
        draws = RandomStream(0)
        assert 0 <= draws.uniform() < 1
        assert abs(draws.normal()) < 9
        assert 0 <= draws.exponential() < 37


def test_the_moments_of_draws():
    n = 20_000
    draws = [RandomStream(9, kind) for kind in range(3)]
    kinds = (draws[0].uniform, draws[1].normal, draws[2].exponential)
    uniform, normal, exponential = ([draw() for _ in range(n)] for draw in kinds)
    error = 4 / n**0.5  # four standard errors of a variable of standard deviation 1
    assert fmean(uniform) == pytest.approx(0.5, abs=error * 12**-0.5)
    assert fmean(normal) == pytest.approx(0, abs=error)
    assert pstdev(normal) == pytest.approx(1, abs=error)
    assert fmean(exponential) == pytest.approx(1, abs=error)
    assert min(exponential) >= 0


def test_draws_of_neighbouring_names_are_not_correlated():
    series = [
        [d.uniform() for _ in range(2000)] for d in (RandomStream(1, "link", name) for name in range(6))
    ]
    for one, two in combinations(series, 2):
        assert abs(np.corrcoef(one, two)[0, 1]) < 0.1


def test_streams_of_pairs_differ_by_order_purpose_and_seed() -> None:
    names = [f"client-{number}" for number in range(30)]
    keys = [
        pair_key(seed, purpose, first, second)
        for seed in (1, 2)
        for purpose in ("latency", "loss")
        for first in names
        for second in names
    ]
    assert len(set(keys)) == len(keys)
    ones = sum(bin(number).count("1") for number in keys)
    assert ones / (64 * len(keys)) == pytest.approx(0.5, abs=0.01)


def test_one_object_serves_many_streams() -> None:
    one, other, both = RandomStream(1, "one"), RandomStream(1, "other"), RandomStream(1)
    expected = [one.uniform(), other.uniform(), one.uniform(), other.uniform()]
    drawn = []
    for place in (0, 1):
        for name in ("one", "other"):
            both.key, both.position = RandomStream(1, name).key, place
            drawn.append(both.uniform())
    assert drawn == expected
