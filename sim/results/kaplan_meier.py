"""Kaplan-Meier estimate of the time to an event, if some observations end before the event.

Examples are clients that leave before they have caught up, and runs that end before they reach a target.
Without them, only successes would count.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray


class CensoredTimes(NamedTuple):
    """Times at which clients or runs reached a level.

    at [N]: infinite for a level that was not reached. watched [N]: duration of the observation; infinite if
    the run ended by itself, because more time would then change nothing.
    """

    at: NDArray[np.float64]
    watched: NDArray[np.float64]

    @classmethod
    def of(cls, times: Sequence[float | None], watched: Sequence[float]) -> Self:
        """Return the times, with None for never; observations last at least until the level is reached."""
        at = np.array([math.inf if time is None else time for time in times], dtype=float)
        return cls(at, np.maximum(np.array(watched, dtype=float), np.where(np.isinf(at), 0.0, at)))

    @property
    def times(self) -> NDArray[np.float64]:
        """Time at which each reached the level, or the end of its observation."""
        return np.minimum(self.at, self.watched)

    @property
    def events(self) -> NDArray[np.bool_]:
        """Mask of the clients or runs that reached the level during their observation."""
        return np.isfinite(self.at) & (self.at <= self.watched)


def survival(reached: CensoredTimes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return times [K], ascending from 0, and the share [K] that has not reached the level by each time."""
    times, counts = np.unique(reached.times[reached.events], return_counts=True)
    at_risk = np.array([(reached.times >= time).sum() for time in times], dtype=float)
    return np.concatenate([[0.0], times]), np.cumprod(np.concatenate([[1.0], 1 - counts / at_risk]))


def median_time(reached: CensoredTimes) -> float | None:
    """Return the time by which half have reached the level, as estimated by `survival`; None if fewer do."""
    times, shares = survival(reached)
    half = np.flatnonzero(shares <= 0.5 + 1e-9)  # rounding may miss one half
    return float(times[half[0]]) if half.size else None


def survival_known_until(reached: CensoredTimes) -> float:
    """Return the time until which `survival` is known.

    It is infinite if the share falls to 0, and if `reached` is empty.
    """
    times = reached.times
    if not times.size or reached.events[times == times.max()].all():
        return math.inf
    return float(times.max())


def restricted_mean(reached: CensoredTimes, until: float) -> float:
    """Return the mean of the times cut off at `until`: the area under `survival` (Royston and Parmar 2013).

    NaN without observations.
    """
    if not len(reached.at) or math.isnan(until):
        return math.nan
    times, shares = survival(reached)
    before = times < until
    return float((np.diff([*times[before], until]) * shares[before]).sum())
