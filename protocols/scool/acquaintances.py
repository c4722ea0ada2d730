"""What a client of SCooL knows of each peer: what it answered last, and how fast it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from protocols.framework.vectors import Scalar, Vector
from protocols.scool.messages import Opinion

RESTS_MAX = 16
"""Iterations at most for which a peer that has nothing new is not asked."""


@dataclass
class Acquaintance:
    """One peer.

    `loss`: of a model of this client on the peer's data, the last that it told. `opinion`: its last answer;
    `used`: the progress, and the iterations, of which this client has made use. `asking`: it is being asked.
    `rests`: for how many iterations it is not asked again, and `rest` how long the next rest is. `pace`:
    when it was first heard of, and last: (s), and after how many of its iterations.
    """

    loss: float | Scalar | None = None
    gradient: Vector | None = None
    opinion: Opinion | None = None
    used: tuple[Vector, int] | None = None
    asking: bool = False
    rests: int = 0
    rest: int = 1
    heard_s: float = -math.inf
    first: tuple[float, int] | None = None
    last: tuple[float, int] | None = None

    def met(self, time_s: float, iterations: int) -> None:
        """It had done so many iterations at that time."""
        self.first = self.first or (time_s, iterations)
        if self.last is None or time_s > self.last[0]:
            self.last = (time_s, iterations)

    @property
    def rate(self) -> float:
        """Its iterations per second since it was first heard of; 0 before it has done two more."""
        if self.first is None or self.last is None or self.last[1] < self.first[1] + 2:
            return 0.0
        return (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])

    def answered(self, opinion: Opinion) -> None:
        """Take note of an answer; one that brings nothing new is followed by a rest, each twice as long."""
        news = self.opinion is None or opinion.iterations != self.opinion.iterations
        self.rest = 1 if news else min(2 * self.rest, RESTS_MAX)
        self.rests = 0 if news else self.rest
        if self.opinion is None or opinion.time >= self.opinion.time:
            self.opinion = opinion
        self.loss = self.loss if opinion.loss is None else opinion.loss
        self.gradient = opinion.gradient

    def new_progress(self) -> Vector | None:
        """How far the peer's own updates have gone since this was asked last; None for no news.

        So each of them counts once, however many messages were lost. At first it is what it did per
        iteration: a newcomer does not make up for all that the others did before.
        """
        if self.opinion is None or self.opinion.progress is None:
            return None
        progress, iterations = self.opinion.progress, self.opinion.iterations
        before, self.used = self.used, (progress, iterations)
        if before is None or iterations < before[1]:  # it is new, or has begun anew
            return progress / iterations if iterations else None
        return progress - before[0] if iterations > before[1] else None


def relative_pace(rate: float, others: Iterable[float]) -> float | None:
    """A client's rate beside the median of the others that are known (above 0); None without any."""
    known = [other for other in others if other > 0]
    return rate / statistics.median(known) if known else None
