"""How fast peers are: their iterations per second, as far as they tell of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class PeerPace:
    """Of one peer: when it was first heard of, and last: (s), and after how many of its iterations."""

    first: tuple[float, int] | None = None
    last: tuple[float, int] | None = None

    def met(self, time_s: float, iterations: int) -> None:
        """It had done so many iterations at that time; fewer than before if it has begun anew."""
        if self.last is not None and time_s <= self.last[0]:
            return
        if self.first is None or (self.last is not None and iterations < self.last[1]):
            self.first = (time_s, iterations)
        self.last = (time_s, iterations)

    @property
    def rate(self) -> float:
        """Its iterations per second since it was first heard of; 0 before it has done two more."""
        if self.first is None or self.last is None or self.last[1] < self.first[1] + 2:
            return 0.0
        return (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])


def relative_pace(iterations: int, duration_s: float, others: Iterable[PeerPace]) -> float | None:
    """How fast a client is that has done so many iterations in that time, beside the median of its peers.

    None as long as none of theirs is known.
    """
    known = [rate for rate in [other.rate for other in others] if rate > 0]
    if not known or not duration_s:
        return None
    return iterations / duration_s / statistics.median(known)
