"""Means and differences over seeds with their intervals, by Student's distribution, since seeds are few."""

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sim.results.kaplan_meier import Reached

LEVEL = 0.95


class Estimate(NamedTuple):
    """A mean over runs and its confidence interval, NaN where there is none."""

    mean: float
    low: float
    high: float
    runs: int


class Contrast(NamedTuple):
    """A mean difference, and the p-value of the hypothesis that it is 0; NaN if it cannot be tested.

    paired: whether runs of the same seed were compared.
    """

    difference: Estimate
    p: float
    paired: bool


def estimate(values: ArrayLike) -> Estimate:
    """Mean and Student's interval of what independent runs gave; values that are NaN are left out."""
    found = np.asarray(values, dtype=float)
    (mean,), (half,) = curve(found[:, None])
    return Estimate(float(mean), float(mean - half), float(mean + half), int((~np.isnan(found)).sum()))


def curve(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean [T] and half width [T] of the interval of curves [runs, T], at each time by itself."""
    from scipy.stats import t  # takes half a second to import

    counts = (~np.isnan(values)).sum(axis=0)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of times with one value or none
        errors = np.nanstd(values, axis=0, ddof=1) / np.sqrt(counts)
        return np.nanmean(values, axis=0), t.ppf(0.5 + LEVEL / 2, counts - 1) * errors


def contrast(ours: Sequence[float], theirs: Sequence[float], *, paired: bool) -> Contrast:
    """The mean of `ours` above that of `theirs`: Student's paired test, or Welch's."""
    from scipy.stats import ttest_1samp, ttest_ind

    a, b = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    if paired:
        differences = (a - b)[~np.isnan(a - b)]
        found = estimate(differences)
        no_test = differences.size < 2 or np.ptp(differences) == 0  # without any spread there is none
        return Contrast(found, math.nan if no_test else float(ttest_1samp(differences, 0).pvalue), True)
    a, b = a[~np.isnan(a)], b[~np.isnan(b)]
    count = int(min(a.size, b.size))
    mean = float(a.mean() - b.mean()) if count else math.nan
    if count < 2 or (np.ptp(a) == 0 and np.ptp(b) == 0):
        return Contrast(Estimate(mean, math.nan, math.nan, count), math.nan, False)
    test = ttest_ind(a, b, equal_var=False)
    low, high = test.confidence_interval(LEVEL)
    return Contrast(Estimate(mean, float(low), float(high), count), float(test.pvalue), False)


def holm(p: Sequence[float]) -> list[float]:
    """P-values corrected for their number (Holm 1979); those that are NaN stay, and do not count."""
    values = np.asarray(p, dtype=float)
    order = np.argsort(values)  # those that are NaN last
    factors = (~np.isnan(values)).sum() - np.arange(len(values))
    corrected = np.full(len(values), math.nan)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * values[order]))
    return corrected.tolist()


def horizon(groups: Sequence[Reached]) -> float:
    """Until when it is known of all runs whether they had: when the first was seen last that had not.

    Where no end of watching hides anything, it is the last time at which any run reached it.
    """
    hidden = [group.watched[~group.events & np.isfinite(group.watched)] for group in groups]
    ends = np.concatenate(hidden) if hidden else np.empty(0)
    reached = np.concatenate([group.at[group.events] for group in groups]) if groups else np.empty(0)
    found = ends.min() if ends.size else reached.max() if reached.size else math.nan
    return float(found)
