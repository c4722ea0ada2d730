"""Loss: rates and bursts as the formulas say, and processes that depend on nothing but their names."""

import math
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.kernel.random import RandomStream
from sim.world.loss.models import BurstyLoss, LossProcess, PairLosses
from tests.world.quantities import bursty, independent

PAIR = ("a", "b")


def process(model: PairLosses, seed: int = 1, pair: tuple[str, str] = PAIR) -> LossProcess:
    made = model.on(seed, pair)
    assert made is not None
    return made


def losses(model: PairLosses, count: int, every_s: float, seed: int = 1) -> list[bool]:
    """What becomes of datagrams that are sent in regular intervals."""
    made = process(model, seed)
    return [made.lost(number * every_s) for number in range(count)]


# -- Independent


def test_without_loss_there_is_no_process() -> None:
    assert independent().on(1, PAIR) is None
    assert independent().rate == 0


def test_repetitions_are_geometric() -> None:
    made = process(independent(0.25))
    counts = [made.repetitions(float(number), 0.2) for number in range(20_000)]
    shares = [counts.count(k) / len(counts) for k in range(3)]
    assert shares == pytest.approx([3 / 4, 3 / 16, 3 / 64], abs=0.012)  # about four standard deviations


# -- Gilbert-Elliott
#
# In continuous time the state is a Markov chain; its relaxation time is tau = 1 / (1 / good + 1 / bad). It is
# bad for the share b = bad / (good + bad) of the time. Seen every d seconds, it stays bad with probability
# b + (1 - b) exp(-d / tau).

GOOD_S, BAD_S, EVERY_S = 9.0, 1.0, 0.1
BURSTY = bursty(GOOD_S, BAD_S)
TAU_S = 1 / (1 / GOOD_S + 1 / BAD_S)


def test_the_rate_is_that_of_the_formula() -> None:
    assert BURSTY.rate == 0.1
    assert bursty(3.0, 1.0, loss_good=0.1, loss_bad=0.5).rate == pytest.approx(0.2)


@pytest.mark.parametrize("model", [BURSTY, bursty(9.0, 1.0, loss_good=0.02, loss_bad=0.5), bursty(1.0, 1.0)])
def test_as_much_is_lost_as_the_formula_says(model: BurstyLoss) -> None:
    lost = losses(model, 200_000, EVERY_S)
    # 20,000 s hold at least 2,000 spells: the standard deviation of the bad share is at most 0.005.
    assert sum(lost) / len(lost) == pytest.approx(model.rate, abs=0.012)


def test_bursts_are_as_long_as_the_formula_says() -> None:
    runs = [len(list(run)) for lost, run in groupby(losses(BURSTY, 200_000, EVERY_S)) if lost]
    share = BAD_S / (GOOD_S + BAD_S)
    expected = 1 / ((1 - share) * (1 - math.exp(-EVERY_S / TAU_S)))
    assert expected == pytest.approx(10.6, abs=0.1)
    assert len(runs) > 1500
    assert sum(runs) / len(runs) == pytest.approx(expected, rel=0.08)  # about three standard deviations


def test_independent_losses_come_in_shorter_bursts() -> None:
    runs = [len(list(run)) for lost, run in groupby(losses(independent(0.1), 20_000, EVERY_S)) if lost]
    assert sum(runs) / len(runs) == pytest.approx(1 / 0.9, rel=0.03)


def test_the_first_moment_is_as_bad_as_any_other() -> None:
    bad = [process(BURSTY, pair=("a", str(number))).lost(0.0) for number in range(4000)]
    assert sum(bad) / 4000 == pytest.approx(0.1, abs=0.02)  # four standard deviations


def test_losses_of_two_moments_are_correlated_as_the_formula_says() -> None:
    # P(bad at t + d, given bad at t) = b + (1 - b) exp(-d / tau)
    lost = losses(BURSTY, 200_000, EVERY_S)
    for steps in (3, 10, 30):
        later = [then for now, then in zip(lost, lost[steps:], strict=False) if now]
        expected = 0.1 + 0.9 * math.exp(-steps * EVERY_S / TAU_S)
        assert sum(later) / len(later) == pytest.approx(expected, abs=0.04)


@given(st.integers(0, 50), st.lists(st.floats(0, 20), max_size=20), st.sampled_from([0.125, 0.5, 3.0]))
def test_a_message_is_repeated_until_the_first_moment_in_a_good_spell(
    seed: int, times_s: list[float], every_s: float
) -> None:
    model = bursty(2.0, 1.0)
    repeating = process(model, seed)
    for time_s in sorted(times_s):
        watching = process(model, seed)
        count = 0
        while watching.lost(time_s + count * every_s):
            count += 1
        assert repeating.repetitions(time_s, every_s) == count


def test_repetitions_through_bursts_are_as_many_as_the_formula_says() -> None:
    # With every transmission in a bad spell lost, a message waits for the end of the spell, which is as far
    # away as if it had just begun: so the share b of the messages is repeated, 1 / (1 - exp(-d / bad)) times
    # on average, where hardly any spell begins between two repetitions (d is small beside good).
    made = process(bursty(50.0, 1.0))
    counts = [made.repetitions(30.0 * number, 0.25) for number in range(40_000)]
    repeated = [count for count in counts if count]
    assert len(repeated) / len(counts) == pytest.approx(1 / 51, rel=0.15)
    assert sum(repeated) / len(repeated) == pytest.approx(1 / (1 - math.exp(-0.25)), rel=0.1)


def test_a_repetition_has_the_loss_of_its_own_moment() -> None:
    made = process(bursty(1e9, 1.0, loss_good=0.5, loss_bad=1.0))  # good, and it stays so
    counts = [made.repetitions(float(number), 0.2) for number in range(10_000)]
    assert [counts.count(k) / 10_000 for k in range(3)] == pytest.approx([1 / 2, 1 / 4, 1 / 8], abs=0.02)


def test_bad_spells_depend_on_seed_and_pair_and_not_on_who_looks() -> None:
    model = bursty(2.0, 1.0)
    often, seldom = process(model), process(model)
    seen = {number: often.lost(number / 8) for number in range(800)}
    assert {number: seldom.lost(number / 8) for number in range(0, 800, 40)}.items() <= seen.items()
    assert seen != {number: lost for number, lost in enumerate(losses(model, 800, 1 / 8, seed=2))}
    other = process(model, pair=("b", "a"))
    assert seen != {number: other.lost(number / 8) for number in range(800)}


def test_a_datagram_takes_one_number() -> None:
    draws, made = RandomStream(1, "loss", *PAIR), process(bursty(1e9, 1.0, loss_good=0.5))
    assert [made.lost(float(number)) for number in range(50)] == [draws.uniform() < 0.5 for _ in range(50)]
