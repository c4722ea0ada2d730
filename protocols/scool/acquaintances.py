"""What a client of SCooL knows of each peer: what it answered last, and how fast it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocols.framework.vectors import Scalar, Vector
from protocols.scool.messages import Opinion
from protocols.shared.pace import PeerPace

RESTS_MAX = 16
"""Iterations at most for which a peer that has nothing new is not asked."""


@dataclass
class Acquaintance:
    """One peer.

    `loss`: of a model of this client on the peer's data, the last that it told. `opinion`: its last answer;
    `used`: the progress, and the iterations, of which this client has made use. `asking`: it is being asked.
    `asked`: how often it was so far, the first time in iteration `since` of this client. `rests`: for how
    many iterations it is not asked again, and `rest` how long the next rest is. `pace`: how fast it is.
    """

    loss: float | Scalar | None = None
    gradient: Vector | None = None
    opinion: Opinion | None = None
    used: tuple[Vector, int] | None = None
    asking: bool = False
    asked: int = 0
    since: int | None = None
    rests: int = 0
    rest: int = 1
    pace: PeerPace = field(default_factory=PeerPace)

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
