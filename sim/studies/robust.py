"""Statistics over the clients of all runs of a group, which a few extreme results change little."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.results.metrics import ALONE
from sim.studies.statistics import Estimate, trimmed_mean
from sim.studies.study import WAITS, WORST, higher_is_better

if TYPE_CHECKING:
    from sim.studies.comparison import Comparison, SeedGroup


class Robust(NamedTuple):
    """Statistics of a metric over the clients of all runs of a group, NaN if unknown.

    middle: interquartile mean. improvement: probability that a client is better than in the baseline's run
    with the same seed; a tie counts half. hurt: share of the clients below their own training alone, in runs
    that measured it.
    """

    middle: Estimate
    improvement: Estimate
    hurt: Estimate


def robust(comparison: Comparison, group: SeedGroup, metric: str) -> Robust | None:
    """Return the statistics of a metric of a group; None if it is not measured per client."""
    if metric in WAITS or metric.endswith(WORST) or not comparison.study.is_of_clients(metric):
        return None
    ends = [run.finals(metric) for run in group.runs]
    alone = [run.finals(metric + ALONE) for run in group.runs]
    gains = [_gains(metric, *pair) for pair in zip(ends, alone, strict=True)]
    against = _against(comparison, group, metric)
    return Robust(
        trimmed_mean([each for each in ends if each is not None], 0.25),
        trimmed_mean([np.heaviside(each, 0.5) for each in against], 0.0),
        trimmed_mean([np.heaviside(-each, 0.0) for each in gains], 0.0),
    )


def _against(comparison: Comparison, group: SeedGroup, metric: str) -> list[NDArray[np.float64]]:
    """Return the gains of a group's clients over the baseline's, for each seed of both."""
    other = comparison.baseline_of(group)
    if other is None:
        return []
    ours, theirs = group.without(other.excluded), other.without(group.excluded)
    by_seed = {run.seed: run.finals(metric) for run in theirs.runs}
    return [_gains(metric, run.finals(metric), by_seed.get(run.seed)) for run in ours.runs]


def _gains(
    metric: str, ours: NDArray[np.float64] | None, theirs: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return the gain of each client, above 0 if `ours` is better; empty without the same clients."""
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return np.empty(0)
    return ours - theirs if higher_is_better(metric) else theirs - ours
