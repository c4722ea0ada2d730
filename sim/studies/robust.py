"""Statistics over the clients of a group's runs; a few extreme results change them little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.studies.statistics import Estimate, trimmed_mean
from sim.studies.study import StudiedRun, higher_is_better


class RobustStatistics(NamedTuple):
    """Statistics of a metric over the clients of all runs of a group, NaN if unknown.

    middle: interquartile mean. improvement: probability that a client is better than in the baseline's run
    with the same seed; a tie counts half. hurt: share of the clients below their own training alone, in runs
    that measured it.
    """

    middle: Estimate
    improvement: Estimate
    hurt: Estimate


def robust_statistics(
    metric: str, runs: Sequence[StudiedRun], pairs: Sequence[tuple[StudiedRun, StudiedRun | None]]
) -> RobustStatistics:
    """Return the statistics of a metric of clients.

    pairs: runs, each with the baseline's run of the same seed and the same clients; None without baseline.
    """
    ends = [run.finals(metric) for run in runs]
    gains = [np.array(list(run.gains_over_alone(metric).values())) for run in runs]
    against = [
        _gains(metric, run.finals(metric), None if other is None else other.finals(metric))
        for run, other in pairs
    ]
    return RobustStatistics(
        trimmed_mean([each for each in ends if each is not None], 0.25),
        trimmed_mean([np.heaviside(each, 0.5) for each in against], 0.0),
        trimmed_mean([np.heaviside(-each, 0.0) for each in gains], 0.0),
    )


def _gains(
    metric: str, ours: NDArray[np.float64] | None, theirs: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return the gain of each client, above 0 if `ours` is better; empty without the same clients."""
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return np.empty(0)
    return ours - theirs if higher_is_better(metric) else theirs - ours
