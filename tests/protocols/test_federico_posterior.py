"""The weights of FedeRiCo against the paper's formulas, applied literally to all in every round."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.federico.posterior import LossTable, negative_softmax
from protocols.framework.mathematics import epsilon_greedy

NAMES = "abcde"
ROUNDS = st.lists(st.dictionaries(st.sampled_from(NAMES), st.floats(0, 50)), max_size=12)
MOMENTA = st.one_of(st.none(), st.floats(0.01, 1.0))


def literally(rounds: Sequence[dict[str, float]], momentum: float | None) -> dict[str, float]:
    """Lines 11 to 15 of algorithm 1 for all candidates, or the sums of eq. 24."""
    last, tracked = dict.fromkeys(NAMES, 0.0), dict.fromkeys(NAMES, 0.0)
    for losses in rounds:
        last |= losses
        for name in NAMES:
            if momentum is None:
                tracked[name] += last[name]
            else:
                tracked[name] = (1 - momentum) * tracked[name] + momentum * last[name]
    return tracked


@given(ROUNDS, MOMENTA)
def test_losses_are_tracked_as_if_everybodys_were_in_every_round(
    rounds: list[dict[str, float]], momentum: float | None
) -> None:
    table = LossTable(NAMES, momentum)
    for losses in rounds:
        table.record(losses)
    expected = literally(rounds, momentum)
    for name in NAMES:
        assert table.tracked(name) == pytest.approx(expected[name], rel=1e-12, abs=1e-9)


def test_who_is_not_evaluated_is_not_touched() -> None:
    """A round costs what is evaluated in it, however many there are."""
    table = LossTable([str(k) for k in range(1000)], 0.6)
    before = {name: vars(record).copy() for name, record in table.records.items()}
    table.record({"3": 1.0, "7": 2.0})
    changed = {name for name, record in table.records.items() if vars(record) != before[name]}
    assert changed == {"3", "7"}


@given(st.lists(st.lists(st.floats(0, 20), min_size=5, max_size=5), min_size=1, max_size=6))
def test_weights_are_the_softmax_of_the_accumulated_losses(rounds: list[list[float]]) -> None:
    """Eqs. 22 to 24: posteriors in turn, each the prior of the next, from a flat one."""
    posterior = np.full(5, 0.2)
    table = LossTable(NAMES, None)
    for losses in rounds:
        posterior = posterior * np.exp(-(np.array(losses) - min(losses)))
        posterior /= posterior.sum()
        table.record(dict(zip(NAMES, losses, strict=True)))
    accumulated = np.array(rounds).sum(axis=0)
    by_softmax = np.exp(-(accumulated - accumulated.min()))
    by_softmax /= by_softmax.sum()
    found = list(table.weights(NAMES).values())
    np.testing.assert_allclose(found, by_softmax, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found, posterior, rtol=1e-6, atol=1e-12)


@given(st.lists(st.floats(-1e6, 1e6) | st.just(np.nan) | st.just(np.inf), min_size=1, max_size=9))
def test_weights_are_shares_and_in_the_order_of_losses(losses: list[float]) -> None:
    weights = negative_softmax(losses, 2.0)
    finite = np.isfinite(losses)
    assert weights.sum() == pytest.approx(1.0 if finite.any() else 0.0)
    assert (weights[~finite] == 0).all()
    ordered = weights[finite][np.argsort(np.array(losses)[finite], kind="stable")]
    assert (np.diff(ordered) <= 0).all()


def test_temperature_divides_the_losses() -> None:
    np.testing.assert_allclose(negative_softmax([2.0, 6.0], 4.0), negative_softmax([0.5, 1.5]))
    np.testing.assert_allclose(negative_softmax([0.0, np.log(3.0)]), [0.75, 0.25])


# --- who comes and goes -------------------------------------------------------------------------------------


def test_at_first_all_weigh_the_same_and_whoever_was_not_tried_ranks_first() -> None:
    table = LossTable(NAMES, 0.6)
    assert table.weights(NAMES) == dict.fromkeys(NAMES, 0.2)
    table.record({"a": 1.0, "c": 2.0})
    rng = np.random.default_rng(0)
    assert set(table.ranked(NAMES, rng)[:3]) == {"b", "d", "e"}
    assert table.ranked(NAMES, rng)[3:] == ["a", "c"]


def test_equal_ones_rank_in_random_order() -> None:
    table, rng = LossTable(NAMES, 0.6), np.random.default_rng(0)
    orders = {tuple(table.ranked(NAMES, rng)) for _ in range(600)}
    assert len(orders) > 100  # of 120


@pytest.mark.parametrize("momentum", [None, 0.6])
def test_a_newcomer_weighs_nothing_before_its_first_loss_which_counts_from_the_start(
    momentum: float | None,
) -> None:
    table = LossTable("ab", momentum)
    for _ in range(5):
        table.record({"a": 1.0, "b": 3.0})
    before = table.weights("ab")
    table.admit("c")
    assert table.weights("abc") == before | {"c": 0.0}
    assert table.ranked("abc", np.random.default_rng(0)) == ["c", "a", "b"]
    table.record({"a": 1.0, "b": 3.0, "c": 1.0})
    weights = table.weights("abc")
    assert weights["c"] == pytest.approx(weights["a"]) and weights["c"] > weights["b"]


def test_one_that_comes_back_is_tried_first_and_keeps_what_was_known() -> None:
    table = LossTable("abc", 0.5)
    table.record({"a": 1.0, "b": 3.0, "c": 2.0})
    weights = table.weights("abc")
    table.admit("b")
    assert table.weights("abc") == weights
    assert table.ranked("abc", np.random.default_rng(0))[0] == "b"
    table.record({"b": 3.0})
    assert table.ranked("abc", np.random.default_rng(0)) == ["a", "c", "b"]


@pytest.mark.parametrize("momentum", [None, 0.6])
@pytest.mark.parametrize("diverged", [np.nan, np.inf])
def test_a_model_that_had_diverged_counts_again_with_its_next_loss(
    momentum: float | None, diverged: float
) -> None:
    table = LossTable("ab", momentum)
    table.record({"a": 1.0, "b": 1.0})
    table.record({"a": diverged, "b": 1.0})
    assert table.weights("ab") == {"a": 0.0, "b": 1.0}
    table.record({"a": 1.0, "b": 1.0})
    weights = table.weights("ab")
    assert weights["a"] == pytest.approx(0.5) and weights["b"] == pytest.approx(0.5)


def test_nobody_weighs_anything_where_nobody_has_been_tried() -> None:
    table = LossTable("", 0.5)
    table.admit("a")
    assert table.weights("a") == {"a": 0.0} and table.weights("") == {}


# --- the choice ---------------------------------------------------------------------------------------------


def chances(candidates: int, count: int, epsilon: float) -> np.ndarray:
    """Of each rank to be chosen, by going through all that can happen."""
    found = np.zeros(candidates)
    for explored in range(count + 1):
        subsets = list(combinations(range(count), explored))
        weight = len(subsets) * epsilon**explored * (1 - epsilon) ** (count - explored)
        greedy = count - explored
        draws = list(combinations(range(greedy, candidates), explored))
        for draw in draws:
            found[[*range(greedy), *draw]] += weight / len(draws)
    return found


@pytest.mark.parametrize(("count", "epsilon"), [(3, 0.3), (2, 0.5), (3, 0.0), (3, 1.0), (5, 0.7)])
def test_the_chances_of_each_rank(count: int, epsilon: float) -> None:
    rng, draws, expected = np.random.default_rng(5), 20_000, chances(6, count, epsilon)
    drawn = np.zeros(6)
    for _ in range(draws):
        for name in epsilon_greedy(list("012345"), count, epsilon, rng):
            drawn[int(name)] += 1
    spread = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(drawn / draws - expected) <= 5 * spread + 1e-12).all()


@given(st.integers(0, 8), st.integers(1, 10), st.floats(0, 1), st.integers(0, 99))
def test_as_many_as_wanted_and_all_different(there: int, count: int, epsilon: float, seed: int) -> None:
    names = [str(k) for k in range(there)]
    chosen = epsilon_greedy(names, count, epsilon, np.random.default_rng(seed))
    assert len(chosen) == len(set(chosen)) == min(count, there)
    assert set(chosen) <= set(names)
