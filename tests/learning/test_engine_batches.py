"""Batches: permutations that are bijections, epochs, and draws that nothing else can change."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from sim.kernel.random import key
from sim.learning.engine.graph import sampler, samples
from sim.learning.engine.graph.batches import (
    draw_batches,
    draw_batches_of_one_client,
    permute,
    sorted_permutations,
)
from sim.learning.engine.graph.sampler import BatchSampler, GradientOrLossJob
from tests.draws import examples
from tests.learning.engines import client_data

Permutations = Callable[[int, np.ndarray], np.ndarray]

KEYS = np.random.Generator(np.random.Philox(key=1)).integers(0, 2**64, 24_000, dtype=np.uint64)


def by_network(count: int, keys: np.ndarray) -> np.ndarray:
    """[keys, count]"""
    return permute(np.arange(count)[None], np.array([[count]]), keys[:, None])


def by_sorting(count: int, keys: np.ndarray) -> np.ndarray:
    """[keys, count]"""
    return sorted_permutations(keys[:, None], np.full(len(keys), count))[:, 0]


def draw(
    keys: np.ndarray, first: list[int], counts: list[int], steps: int, batch_size: int, sampling: str
) -> np.ndarray:
    return draw_batches(
        keys, np.array(first), np.array(counts), steps=steps, batch_size=batch_size, sampling=sampling
    )


@pytest.mark.parametrize("permutations", [by_network, by_sorting])
def test_permutation_is_a_bijection(permutations: Permutations) -> None:
    for count in (*range(1, 201), 1_000, 65_537):
        for permuted in permutations(count, KEYS[:3]):
            assert np.array_equal(np.sort(permuted), np.arange(count))


def test_short_and_long_ranges_are_sorted_side_by_side() -> None:
    together = sorted_permutations(KEYS[:6].reshape(3, 2), np.array([2, 9, 5]))
    for client, count in enumerate([2, 9, 5]):
        alone = by_sorting(count, KEYS[2 * client : 2 * client + 2])
        assert np.array_equal(together[client, :, :count], alone)


@pytest.mark.long
@pytest.mark.parametrize(
    ("permutations", "count"),
    [(by_sorting, count) for count in (2, 3, 5, 7, 16, 50)]
    + [(by_network, count) for count in (65, 66, 81, 82, 100, 150)],  # those that it is used for
)
def test_permutation_is_uniform(permutations: Permutations, count: int) -> None:
    """Each position goes to each item equally often, and so do pairs of positions to pairs of items."""
    permuted = permutations(count, KEYS)
    for position in range(count):
        assert chisquare(np.bincount(permuted[:, position], minlength=count)).pvalue > 1e-3
    different = ~np.eye(count, dtype=bool)
    for other in {1, count // 2, count - 1} - {0}:
        pairs = np.bincount(permuted[:, 0] * count + permuted[:, other], minlength=count**2)
        assert pairs.reshape(count, count)[~different].sum() == 0
        assert chisquare(pairs.reshape(count, count)[different]).pvalue > 1e-3


@given(count=st.integers(1, 90), batch_size=st.integers(1, 12), epoch=st.integers(0, 10**6))
@examples(60)
def test_shuffled_epochs_visit_every_sample_once(count: int, batch_size: int, epoch: int) -> None:
    batch_size = min(batch_size, count)
    per_epoch = count // batch_size
    drawn = draw(KEYS[:1], [epoch * per_epoch], [count], 2 * per_epoch, batch_size, "shuffled")
    for one in np.split(drawn.reshape(-1), 2):
        assert len(one) == per_epoch * batch_size  # the last incomplete batch is dropped
        assert len(set(one.tolist())) == len(one)
        assert one.min() >= 0
        assert one.max() < count


def test_epochs_are_in_different_orders_and_drop_different_samples() -> None:
    epochs = draw(KEYS[:1], [0], [10], 20 * 3, 3, "shuffled").reshape(20, 9)
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 20
    assert len({45 - int(epoch.sum()) for epoch in epochs}) > 5


@given(data=st.data(), sampling=st.sampled_from(["shuffled", "replacement"]))
@examples(50)
def test_draws_do_not_depend_on_grouping_or_order(data: st.DataObject, sampling: str) -> None:
    """Any clients, in any order, in any company, in one piece or step by step: always the same samples."""
    clients = data.draw(st.permutations(range(6)))[: data.draw(st.integers(1, 6))]
    first, counts = [0, 3, 7, 50, 2, 0], [5, 8, 13, 5, 200, 5]
    steps, batch_size = 4, 5
    alone = [
        draw(KEYS[c : c + 1], [first[c] + s], [counts[c]], 1, batch_size, sampling)[0, 0]
        for c in clients
        for s in range(steps)
    ]
    together = draw(
        KEYS[list(clients)],
        [first[c] for c in clients],
        [counts[c] for c in clients],
        steps,
        batch_size,
        sampling,
    )
    assert np.array_equal(together, np.array(alone).reshape(len(clients), steps, batch_size))


def test_replacement_is_uniform_and_independent() -> None:
    drawn = draw(KEYS[:100], [0] * 100, [7] * 100, 60, 16, "replacement").reshape(-1)
    assert chisquare(np.bincount(drawn, minlength=7)).pvalue > 1e-3
    assert chisquare(np.bincount(drawn[:-1] * 7 + drawn[1:], minlength=49)).pvalue > 1e-3


def test_replacement_may_draw_more_than_there_is() -> None:
    drawn = draw(KEYS[:2], [0, 0], [1, 3], 2, 8, "replacement")
    assert drawn[0].max() == 0
    assert set(drawn[1].ravel().tolist()) == {0, 1, 2}


def test_all_takes_samples_in_order() -> None:
    assert draw(KEYS[:2], [0, 9], [3, 3], 1, 3, "all").tolist() == [[[0, 1, 2]], [[0, 1, 2]]]


def test_ragged_clients_get_their_own_samples_and_labels() -> None:
    """Rows are addressed by (client, position); neighbors of other sizes must not shift them."""
    data = client_data([5, 3, 9], label_maps=[[0, 1, 2], [1, 2, 0], [2, 1, 0]])
    subset = data.train
    draw = BatchSampler(subset, 3, "shuffled")
    batches = draw.batches(
        [GradientOrLossJob(client, key(1, client), 4) for client in (2, 0, 1)], skip=0, steps=2
    )
    assert batches.clients.tolist() == [2, 0, 1]
    assert batches.first is not None
    assert batches.first.tolist() == [4, 4, 4]
    positions = batches.positions
    assert positions is not None
    x, y = draw.samples(batches, 1, 3)
    fewer_x, fewer_y = draw.samples(batches, 1, 2)
    assert fewer_x.equal(x[:2])
    assert fewer_y.equal(y[:2])
    maps = {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 1, 0]}
    owned = np.split(np.random.Generator(np.random.Philox(key=5)).permutation(17), [5, 8])
    for n, client in enumerate((2, 0, 1)):
        rows = owned[client][positions[n, 1]]
        assert x[n].equal(subset.x[rows])
        assert y[n].tolist() == [maps[client][label] for label in subset.y[rows].tolist()]


@pytest.mark.parametrize("views", [1, 2])
def test_samples_are_the_same_however_many_steps_are_looked_up_at_once(
    views: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    subset = client_data([5, 3, 9], label_maps=[[0, 1, 2], [1, 2, 0], [2, 1, 0]]).train
    draw, active = BatchSampler(subset, 3, "shuffled", views=views), [3, 3, 2, 2, 1]
    found = []
    for limit_bytes in (0, 2 * 3 * 3 * views * 16, 2**20):  # a row and a class take 16
        monkeypatch.setattr(sampler, "_LOOKED_UP_BYTES", limit_bytes)
        batches = draw.batches([GradientOrLossJob(client, key(1, client), 4) for client in (2, 0, 1)], 0, 5)
        drawn = [draw.samples(batches, step, count) for step, count in enumerate(active)]
        found.append(drawn)
        assert [len(x) for x, _ in drawn] == [len(y) for _, y in drawn] == active
        assert all(x.storage_offset() == 0 and y.is_contiguous() for x, y in drawn)
    for drawn in found[1:]:
        for (x, y), (expected_x, expected_y) in zip(drawn, found[0], strict=True):
            assert x.equal(expected_x) and y.equal(expected_y)


@pytest.mark.parametrize(
    ("count", "batch_size"), [(16, 16), (17, 16), (50, 16), (64, 8), (65, 16), (300, 16)]
)
def test_one_client_alone_draws_what_it_draws_among_others(count: int, batch_size: int) -> None:
    together = draw(KEYS[:3], [5, 3, 0], [count, count, 40], 7, batch_size, "shuffled")
    for client, first in enumerate([5, 3]):
        alone = draw_batches_of_one_client(int(KEYS[client]), first, count, 7, batch_size)
        assert alone.shape == (1, 7, batch_size)
        assert np.array_equal(alone[0], together[client])


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("counts", [[3, 3, 3], [3, 4, 3], [4, 4, 4]])
@pytest.mark.parametrize("sampling", ["shuffled", "replacement", "all"])
def test_batches_of_all_that_a_client_has_are_its_samples_in_order(
    sampling: str, counts: list[int], views: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they come from a copy in which they lie side by side, and where that would be too large."""
    maps = [[0, 1, 2], [1, 2, 0], [2, 1, 0]]
    jobs = [GradientOrLossJob(client, key(1, client), 7) for client in (2, 0)]
    for limit_bytes in (0, 2**20):
        monkeypatch.setattr(samples, "_STACKED_BYTES", limit_bytes)
        subset = client_data(counts, label_maps=maps).train
        draw = BatchSampler(subset, 3, sampling, views=views)
        batches = draw.batches(jobs, skip=2, steps=2)
        whole = counts == [3, 3, 3] and sampling != "replacement"
        assert (subset.stacked is not None) == (limit_bytes > 0 and counts != [3, 4, 3])
        assert (draw._whole is not None) == (limit_bytes > 0 and whole and views == 1)
        assert (batches.positions is None) == (draw._whole is not None)
        in_order = np.tile(np.arange(3), (2, 2, 1))
        positions = in_order if batches.positions is None else batches.positions
        if whole or sampling == "all":
            assert np.array_equal(positions, in_order)
        elif sampling == "replacement":
            assert not np.array_equal(positions, in_order)
        if draw._whole is not None:
            monkeypatch.delattr(type(subset), "gather")
        x, y = draw.samples(batches, 0, 2)
        monkeypatch.undo()
        expected_x, expected_y = subset.gather(np.array([2, 0]), np.tile(positions[:, 0], views))
        assert x.equal(expected_x)
        assert y.equal(expected_y)
