"""Means and differences over seeds, with intervals by Student's t for few seeds."""

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sim.results.kaplan_meier import Reached

LEVEL = 0.95


class Estimate(NamedTuple):
    """A mean over runs and its confidence interval, NaN if unknown."""

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
    """Return mean and Student's interval of values of independent runs; NaN values are ignored."""
    found = np.asarray(values, dtype=float)
    (mean,), (half,) = curve(found[:, None])
    return Estimate(float(mean), float(mean - half), float(mean + half), int((~np.isnan(found)).sum()))


def curve(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean [T] and half width [T] of the interval of curves [runs, T], separately for each time."""
    from scipy.stats import t  # takes half a second to import

    counts = (~np.isnan(values)).sum(axis=0)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # times with at most one value
        errors = np.nanstd(values, axis=0, ddof=1) / np.sqrt(counts)
        return np.nanmean(values, axis=0), t.ppf(0.5 + LEVEL / 2, counts - 1) * errors


def contrast(ours: Sequence[float], theirs: Sequence[float], *, paired: bool) -> Contrast:
    """Test the mean of `ours` minus that of `theirs`, by Student's paired test or Welch's test."""
    from scipy.stats import ttest_1samp, ttest_ind

    a, b = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    if paired:
        differences = (a - b)[~np.isnan(a - b)]
        found = estimate(differences)
        no_test = differences.size < 2 or np.ptp(differences) == 0  # no test without spread
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
    """Correct p-values for their number (Holm 1979); NaN values are kept, and do not count."""
    values = np.asarray(p, dtype=float)
    order = np.argsort(values)  # NaN last
    factors = (~np.isnan(values)).sum() - np.arange(len(values))
    corrected = np.full(len(values), math.nan)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * values[order]))
    return corrected.tolist()


def horizon(groups: Sequence[Reached]) -> float:
    """Return the time until which each run is known to have reached the target or not.

    It is the earliest end of observation of a run that has not reached it. If no observation ended early,
    it is the last time at which a run reached it.
    """
    hidden = [group.watched[~group.events & np.isfinite(group.watched)] for group in groups]
    ends = np.concatenate(hidden) if hidden else np.empty(0)
    reached = np.concatenate([group.at[group.events] for group in groups]) if groups else np.empty(0)
    found = ends.min() if ends.size else reached.max() if reached.size else math.nan
    return float(found)
