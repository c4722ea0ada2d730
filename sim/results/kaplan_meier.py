"""Kaplan and Meier's estimate of how long something takes, of which some were not watched until the end.

Clients that leave before they have caught up, and runs that end before they reach a target, are such. To
leave them out would count the successes only.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray


class Reached(NamedTuple):
    """When, or after how much, each of several clients or runs reached something.

    at [N]: infinite for those that never did. watched [N]: how long each was looked at; infinite where it
    ended by itself, so that it never would.
    """

    at: NDArray[np.float64]
    watched: NDArray[np.float64]

    @classmethod
    def of(cls, times: Sequence[float | None], watched: Sequence[float]) -> Self:
        """From the times, None where it was never reached; who reached it was watched until then."""
        at = np.array([math.inf if time is None else time for time in times], dtype=float)
        return cls(at, np.maximum(np.array(watched, dtype=float), np.where(np.isinf(at), 0.0, at)))

    @property
    def times(self) -> NDArray[np.float64]:
        """When each reached it, or was seen last."""
        return np.minimum(self.at, self.watched)

    @property
    def events(self) -> NDArray[np.bool_]:
        """Which ones reached it while they were watched."""
        return np.isfinite(self.at) & (self.at <= self.watched)


def survival(reached: Reached) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times [K], ascending from 0, and the share [K] that has not reached it from each of them on."""
    times, counts = np.unique(reached.times[reached.events], return_counts=True)
    at_risk = np.array([(reached.times >= time).sum() for time in times], dtype=float)
    return np.concatenate([[0.0], times]), np.cumprod(np.concatenate([[1.0], 1 - counts / at_risk]))


def median_time(reached: Reached) -> float | None:
    """The time by which half have reached it; None if not half do."""
    times, shares = survival(reached)
    half = np.flatnonzero(shares <= 0.5 + 1e-9)  # a product of fractions may miss a half by a rounding
    return float(times[half[0]]) if half.size else None


def known_until(reached: Reached) -> float:
    """The time until which `survival` is known; infinite where all have reached it."""
    times = reached.times
    if not times.size or reached.events[times == times.max()].all():
        return math.inf
    return float(times.max())


def restricted_mean(reached: Reached, until: float) -> float:
    """The mean of the times, each cut off at `until`: the area under `survival` (Royston and Parmar 2013).

    NaN where nothing was watched.
    """
    if not len(reached.at) or math.isnan(until):
        return math.nan
    times, shares = survival(reached)
    before = times < until
    return float((np.diff([*times[before], until]) * shares[before]).sum())
