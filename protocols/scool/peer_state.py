"""What a client of SCooL knows of each peer: how it has evaluated this client's model, and what it told."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.framework.vectors import Scalar, Vector
from protocols.scool.messages import PeerEvaluation

RESTS_MAX = 16
"""Iterations at most for which a peer that has nothing new is not asked."""


@dataclass
class PeerState:
    """One peer.

    `loss`: of a model of this client on the peer's data, the last that it told. `evaluation`: its last
    answer; `used`: the progress, and the iterations, of which this client has made use. `asking`: it is being
    asked. `asked`: how often it was so far, the first time in iteration `since` of this client. `rests`: for
    how many iterations it is not asked again, and `rest` how long the next rest is.
    """

    loss: float | Scalar | None = None
    gradient: Vector | None = None
    evaluation: PeerEvaluation | None = None
    used: tuple[Vector, int] | None = None
    asking: bool = False
    asked: int = 0
    since: int | None = None
    rests: int = 0
    rest: int = 1

    def answered(self, evaluation: PeerEvaluation) -> None:
        """Take note of an answer; one that brings nothing new is followed by a rest, each twice as long."""
        news = self.evaluation is None or evaluation.iterations != self.evaluation.iterations
        self.rest = 1 if news else min(2 * self.rest, RESTS_MAX)
        self.rests = 0 if news else self.rest
        if self.evaluation is None or evaluation.time >= self.evaluation.time:
            self.evaluation = evaluation
        self.loss = self.loss if evaluation.loss is None else evaluation.loss
        self.gradient = evaluation.gradient

    def new_progress(self) -> Vector | None:
        """How far the peer's own updates have gone since this was asked last; None for no news.

        So each of them counts once, however many messages were lost. At first it is what it did per
        iteration: a newcomer does not make up for all that the others did before.
        """
        if self.evaluation is None or self.evaluation.progress is None:
            return None
        progress, iterations = self.evaluation.progress, self.evaluation.iterations
        before, self.used = self.used, (progress, iterations)
        if before is None or iterations < before[1]:  # it is new, or has begun anew
            return progress / iterations if iterations else None
        return progress - before[0] if iterations > before[1] else None
