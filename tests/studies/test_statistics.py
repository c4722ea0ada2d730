"""Intervals, tests and waiting times against scipy and statsmodels, and how often intervals are right."""

import math

import numpy as np
import pytest
from scipy import stats

from sim.results.kaplan_meier import (
    CensoredTimes,
    median_time,
    restricted_mean,
    survival,
    survival_known_until,
)
from sim.studies.statistics import contrast, correct_p_values, estimate, horizon, mean_curve


@pytest.fixture
def rng() -> np.random.Generator:
    """The same for each test, whichever tests the process has run before."""
    return np.random.default_rng(20_26)


def test_the_interval_of_a_mean_is_students(rng: np.random.Generator) -> None:
    values = rng.normal(3, 2, size=7)
    found = estimate(values)
    expected = stats.t.interval(0.95, 6, loc=values.mean(), scale=stats.sem(values))
    assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), *expected))
    without = estimate([*values, math.nan])  # seven of eight numbers may be added up in another order
    assert (without.mean, without.low, without.high) == pytest.approx((found.mean, found.low, found.high))
    assert without.runs == found.runs == 7
    assert math.isnan(estimate([1.0]).low) and estimate([1.0]).mean == 1.0
    assert estimate([]).runs == 0


def test_a_curve_has_the_interval_of_each_of_its_times(rng: np.random.Generator) -> None:
    values = rng.normal(size=(5, 4))
    values[2:, 1], values[1:, 2], values[:, 3] = math.nan, math.nan, math.nan
    mean, half = mean_curve(values)
    for time in range(4):
        found = estimate(values[:, time])
        assert (mean[time], half[time]) == pytest.approx((found.mean, found.high - found.mean), nan_ok=True)


def test_paired_and_unpaired_differences_are_scipys(rng: np.random.Generator) -> None:
    a, b = rng.normal(1, 1, size=6), rng.normal(0, 3, size=6)
    paired, expected = contrast(a, b, paired=True), stats.ttest_rel(a, b)
    interval = expected.confidence_interval()
    assert paired.p == pytest.approx(expected.pvalue)
    assert (paired.difference.low, paired.difference.high) == pytest.approx((interval.low, interval.high))
    unpaired = contrast(a, b[:4], paired=False)
    assert unpaired.p == pytest.approx(stats.ttest_ind(a, b[:4], equal_var=False).pvalue)
    assert unpaired.difference.mean == pytest.approx(a.mean() - b[:4].mean())


def test_nothing_is_said_without_a_spread() -> None:
    assert math.isnan(contrast([1.0], [0.0], paired=True).p)
    assert math.isnan(contrast([1.0, 1.0], [0.0, 0.0], paired=True).p)
    assert math.isnan(contrast([1.0, 1.0], [0.0, 0.0], paired=False).p)


@pytest.mark.long
def test_the_correction_is_holms(rng: np.random.Generator) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    for count in (1, 2, 9):
        p = rng.uniform(0, 0.2, size=count)
        expected = multitest.multipletests(p, method="holm")[1]
        assert correct_p_values(p.tolist()) == pytest.approx(expected.tolist())
    corrected = correct_p_values([0.01, math.nan, 0.03])
    assert corrected[::2] == pytest.approx([0.02, 0.03]) and math.isnan(corrected[1])


def censored(rng: np.random.Generator, count: int) -> CensoredTimes:
    """Times of one decimal, so that some are the same, and when watching ended."""
    at, watched = rng.exponential(1, size=count).round(1), rng.exponential(2, size=count).round(1)
    return CensoredTimes(np.where(at <= watched, at, math.inf), watched)


@pytest.mark.parametrize("count", [3, 12, 40])
def test_the_share_that_waits_is_kaplan_and_meiers(rng: np.random.Generator, count: int) -> None:
    survfunc = pytest.importorskip("statsmodels.duration.survfunc")
    reached = censored(rng, count)
    expected = survfunc.SurvfuncRight(reached.times, reached.events.astype(int))
    times, shares = survival(reached)
    position = np.searchsorted(times, expected.surv_times, side="right") - 1
    assert shares[position] == pytest.approx(expected.surv_prob)
    if not np.isclose(expected.surv_prob, 0.5).any():  # else statsmodels waits for less than half
        assert (median_time(reached) or math.nan) == pytest.approx(expected.quantile(0.5), nan_ok=True)


@pytest.mark.parametrize("count", [4, 30])
def test_a_restricted_mean_is_the_area_under_the_curve(rng: np.random.Generator, count: int) -> None:
    """Against the curve of statsmodels, integrated by hand."""
    survfunc = pytest.importorskip("statsmodels.duration.survfunc")
    reached, until = censored(rng, count), 1.3
    fitted = survfunc.SurvfuncRight(reached.times, reached.events.astype(int))
    grid = (np.arange(130_000) + 0.5) * until / 130_000
    position = np.searchsorted(fitted.surv_times, grid, side="right") - 1
    survival = np.where(position >= 0, fitted.surv_prob[position], 1.0)
    assert restricted_mean(reached, until) == pytest.approx(survival.mean() * until, abs=1e-4)


def test_where_all_were_watched_long_enough_it_is_the_mean_of_what_is_cut_off() -> None:
    at = np.array([1.0, 2.0, math.inf, 4.0, 9.0])
    reached = CensoredTimes(at, np.full(5, 10.0))
    assert restricted_mean(reached, 5.0) == pytest.approx(np.minimum(at, 5.0).mean())
    assert (
        survival_known_until(reached) == 10.0
        and survival_known_until(CensoredTimes(at[:2], at[:2])) == math.inf
    )


def test_a_horizon_ends_where_the_first_run_that_never_reached_it_was_seen_last() -> None:
    there = CensoredTimes(np.array([1.0, 3.0]), np.array([10.0, 10.0]))
    assert horizon([there]) == 3.0
    assert horizon([there, CensoredTimes(np.array([math.inf, 2.0]), np.array([8.0, 20.0]))]) == 8.0
    # One that ended by itself never reaches it, however long one waits.
    assert horizon([there, CensoredTimes(np.array([math.inf]), np.array([math.inf]))]) == 3.0
    assert restricted_mean(CensoredTimes(np.array([math.inf]), np.array([math.inf])), 3.0) == 3.0


def shares_covered(rng: np.random.Generator, count: int, seeds: int) -> tuple[float, float]:
    """How often 95% intervals hold the truth, in so many studies: of means, and of differences."""
    rng, of_means, of_differences = np.random.default_rng(7), 0, 0
    for _ in range(count):
        level = rng.normal(size=seeds)  # what runs of one seed share
        a, b = level + rng.normal(0.5, 0.3, size=seeds), level + rng.normal(0, 0.3, size=seeds)
        mean, difference = estimate(a), contrast(a, b, paired=True).difference
        of_means += mean.low <= 0.5 <= mean.high
        of_differences += difference.low <= 0.5 <= difference.high
    return of_means / count, of_differences / count


@pytest.mark.long
def test_95_percent_intervals_hold_the_truth_95_times_of_100(rng: np.random.Generator) -> None:
    """1,000 studies of five seeds: two standard errors are 1.4 points."""
    of_means, of_differences = shares_covered(rng, 1_000, 5)
    assert 0.935 <= of_means <= 0.965
    assert 0.935 <= of_differences <= 0.965


@pytest.mark.long
def test_chance_alone_is_rarely_significant_after_the_correction(rng: np.random.Generator) -> None:
    """500 studies of six methods that do not differ: 5% of them may have a mark (standard error 1)."""
    rng, marked = np.random.default_rng(11), 0
    for _ in range(500):
        values = rng.normal(size=(6, 5)) + rng.normal(size=5)
        p = [contrast(each, values[0], paired=True).p for each in values[1:]]
        marked += min(correct_p_values(p)) < 0.05
    assert marked / 500 <= 0.07
