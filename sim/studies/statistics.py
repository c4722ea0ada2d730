"""What a handful of seeds says: means, differences and times, with their intervals.

Seeds are few, so that intervals are Student's, and there is none for a single seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95


class Estimate(NamedTuple):
    """A mean over so many runs and its interval, NaN where there is none."""

    mean: float
    low: float
    high: float
    runs: int


class Contrast(NamedTuple):
    """A mean difference, and the p-value of there being none; NaN where nothing can be said.

    paired: whether seed was compared with seed.
    """

    difference: Estimate
    p: float
    paired: bool


class Reached(NamedTuple):
    """When, or after how much, each of several runs reached something.

    at: by run, infinite if it never did. watched: how far it was looked at; infinite if it ended by itself,
    so that it never would.
    """

    at: NDArray[np.float64]
    watched: NDArray[np.float64]

    @property
    def times(self) -> NDArray[np.float64]:
        """By run, when it was reached or seen last."""
        return np.minimum(self.at, self.watched)

    @property
    def events(self) -> NDArray[np.bool_]:
        """Which runs reached it while they were watched."""
        return np.isfinite(self.at) & (self.at <= self.watched)


def estimate(values: ArrayLike, level: float = LEVEL) -> Estimate:
    """Mean and Student's interval of what independent runs gave; values that are NaN are left out."""
    found = np.asarray(values, dtype=float)
    found = found[~np.isnan(found)]
    if not found.size:
        return Estimate(math.nan, math.nan, math.nan, 0)
    mean, half = float(found.mean()), math.nan
    if found.size > 1:
        half = _quantile(found.size, level) * float(found.std(ddof=1)) / math.sqrt(found.size)
    return Estimate(mean, mean - half, mean + half, int(found.size))


def curve(
    values: NDArray[np.float64], level: float = LEVEL
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean [T] and half width [T] of the interval of curves [runs, T], at each time by itself."""
    counts = (~np.isnan(values)).sum(axis=0)
    mean, half = np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    for count in np.unique(counts[counts > 0]).tolist():
        at = counts == count
        mean[at] = np.nanmean(values[:, at], axis=0)
        if count > 1:
            errors = np.nanstd(values[:, at], axis=0, ddof=1) / math.sqrt(count)
            half[at] = _quantile(count, level) * errors
    return mean, half


def _quantile(count: int, level: float) -> float:
    """Of Student's distribution for the mean of so many values."""
    from scipy.stats import t  # takes half a second to import

    return float(t.ppf(0.5 + level / 2, count - 1))


def contrast(
    ours: Sequence[float], theirs: Sequence[float], *, paired: bool, level: float = LEVEL
) -> Contrast:
    """The mean of `ours` above that of `theirs`: Student's paired test, or Welch's."""
    from scipy.stats import ttest_1samp, ttest_ind

    a, b = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    if paired:
        differences = (a - b)[~np.isnan(a - b)]
        found = estimate(differences, level)
        no_test = differences.size < 2 or np.ptp(differences) == 0  # without any spread there is none
        return Contrast(found, math.nan if no_test else float(ttest_1samp(differences, 0).pvalue), True)
    a, b = a[~np.isnan(a)], b[~np.isnan(b)]
    count = int(min(a.size, b.size))
    mean = float(a.mean() - b.mean()) if count else math.nan
    if count < 2 or (np.ptp(a) == 0 and np.ptp(b) == 0):
        return Contrast(Estimate(mean, math.nan, math.nan, count), math.nan, False)
    test = ttest_ind(a, b, equal_var=False)
    low, high = test.confidence_interval(level)
    return Contrast(Estimate(mean, float(low), float(high), count), float(test.pvalue), False)


def holm(p: Sequence[float]) -> list[float]:
    """P-values corrected for their number (Holm 1979); those that are NaN stay, and do not count."""
    known = [number for number, value in enumerate(p) if not math.isnan(value)]
    corrected, largest = [math.nan] * len(p), 0.0
    for rank, number in enumerate(sorted(known, key=lambda number: p[number])):
        largest = max(largest, min(1.0, (len(known) - rank) * p[number]))
        corrected[number] = largest
    return corrected


# --- times to something that not all reach ------------------------------------------------------------------


def waiting(reached: Reached) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times [K], ascending from 0, and from each of them on the share [K] that waits, by Kaplan and Meier."""
    times, counts = np.unique(reached.times[reached.events], return_counts=True)
    at_risk = np.array([(reached.times >= time).sum() for time in times], dtype=float)
    return np.concatenate([[0.0], times]), np.cumprod(np.concatenate([[1.0], 1 - counts / at_risk]))


def median_time(reached: Reached) -> float | None:
    """By when half have reached it, by Kaplan and Meier; None if that says not half have."""
    times, shares = waiting(reached)
    half = np.flatnonzero(shares <= 0.5 + 1e-9)  # a product of fractions may miss a half by a rounding
    return float(times[half[0]]) if half.size else None


def horizon(groups: Sequence[Reached]) -> float:
    """Until when it is known of all runs whether they had: when the first was seen last that had not.

    Where no end of watching hides anything, it is the last time at which any run reached it.
    """
    hidden = [group.watched[~group.events & np.isfinite(group.watched)] for group in groups]
    ends = np.concatenate(hidden) if hidden else np.empty(0)
    reached = np.concatenate([group.at[group.events] for group in groups]) if groups else np.empty(0)
    found = ends.min() if ends.size else reached.max() if reached.size else math.nan
    return float(found)


def known_until(reached: Reached) -> float:
    """Until when the share that waits is known; infinite where nobody waits any more."""
    times = reached.times
    if not times.size or reached.events[times == times.max()].all():
        return math.inf
    return float(times.max())


def restricted_mean(reached: Reached, until: float) -> float:
    """Mean of the time until something is reached, or `until` where that is first; NaN of nothing.

    The area under Kaplan and Meier's curve (Royston and Parmar 2013).
    """
    if not len(reached.at) or math.isnan(until):
        return math.nan
    times, shares = waiting(reached)
    before = times < until
    return float((np.diff([*times[before], until]) * shares[before]).sum())
