"""Means, differences and trimmed means over seeds, with intervals by Student's t and by bootstrap."""

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sim.results.kaplan_meier import CensoredTimes

LEVEL = 0.95
RESAMPLES = 2_000
"""Number of resamples of a bootstrap, drawn with the same seed each time."""
_VALUES_MAX = 1_000_000  # values of resamples in memory at a time


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
    (mean,), (half,) = mean_curve(found[:, None])
    return Estimate(float(mean), float(mean - half), float(mean + half), int((~np.isnan(found)).sum()))


def mean_curve(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean [T] and half width [T] of the interval of curves [runs, T], separately for each time."""
    from scipy.stats import t  # takes half a second to import

    counts = (~np.isnan(values)).sum(axis=0)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # times with at most one value
        errors = np.nanstd(values, axis=0, ddof=1) / np.sqrt(counts)
        return np.nanmean(values, axis=0), t.ppf(0.5 + LEVEL / 2, counts - 1) * errors


def contrast(ours: Sequence[float], theirs: Sequence[float], *, paired: bool) -> Contrast:
    """Test the mean of `ours` minus the mean of `theirs`, by Student's paired test or Welch's test."""
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


def trimmed_mean(runs: Sequence[NDArray[np.float64]], share: float) -> Estimate:
    """Return the mean over clients of all runs, without the lowest and the highest `share` of the values.

    The interval comes from a bootstrap that resamples whole runs, since clients of a run depend on each
    other. NaN values are ignored, and so are runs with only NaN values.
    """
    known = [run[~np.isnan(run)] for run in runs]
    known = [run for run in known if run.size]
    if not known:
        return Estimate(math.nan, math.nan, math.nan, 0)
    values = np.concatenate(known)
    order = np.argsort(values, kind="stable")
    of_run = np.repeat(np.arange(len(known)), [run.size for run in known])[order]
    whole = np.ones((1, len(known)), dtype=np.int64)
    (mean,) = _trimmed(values[order], whole[:, of_run], share)
    if len(known) == 1:
        return Estimate(float(mean), math.nan, math.nan, 1)
    drawn = np.random.Generator(np.random.PCG64(0)).multinomial(
        len(known), whole[0] / len(known), size=RESAMPLES
    )
    counts, index = np.unique(drawn, axis=0, return_inverse=True)  # few seeds have few different resamples
    parts = np.array_split(counts, math.ceil(counts.shape[0] * values.size / _VALUES_MAX))
    means = np.concatenate([_trimmed(values[order], part[:, of_run], share) for part in parts])
    low, high = np.quantile(means[index.ravel()], [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return Estimate(float(mean), float(low), float(high), len(known))


def _trimmed(ordered: NDArray[np.float64], counts: NDArray[np.int64], share: float) -> NDArray[np.float64]:
    """Return the trimmed means [R] of resamples, which have the value ordered[v] counts[r, v] times."""
    ends = counts.cumsum(axis=1)
    cut = (share * ends[:, -1:]).astype(np.int64)
    limits = cut, ends[:, -1:] - cut
    kept = np.clip(ends, *limits) - np.clip(ends - counts, *limits)
    return (kept * ordered).sum(axis=1) / kept.sum(axis=1)


def correct_p_values(p: Sequence[float]) -> list[float]:
    """Correct p-values for their number (Holm 1979); NaN values are kept, and do not count."""
    values = np.asarray(p, dtype=float)
    order = np.argsort(values)  # NaN last
    factors = (~np.isnan(values)).sum() - np.arange(len(values))
    corrected = np.full(len(values), math.nan)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * values[order]))
    return corrected.tolist()


def horizon(groups: Sequence[CensoredTimes]) -> float:
    """Return the last time at which it is known, for every run, whether the run has reached the target.

    This is the earliest end of the observation of a run that had not reached the target. If there is no such
    end, it is the last time at which a run reached the target; NaN if none did.
    """
    hidden = [group.watched[~group.events & np.isfinite(group.watched)] for group in groups]
    ends = np.concatenate(hidden) if hidden else np.empty(0)
    reached = np.concatenate([group.at[group.events] for group in groups]) if groups else np.empty(0)
    found = ends.min() if ends.size else reached.max() if reached.size else math.nan
    return float(found)
