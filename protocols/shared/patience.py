"""Clients that wait for others, but not for ever: what they can be told, and whom they give up."""

from __future__ import annotations

import math

from actors.settings.base import default
from actors.settings.quantities import PositiveDuration
from protocols.framework import learner


class PatientSettings(learner.ProtocolSettings):
    """Base of the settings of methods whose clients wait for each other."""

    patience: PositiveDuration = default("1 min")
    """How long a silent peer is waited for before it is suspected; what is lost is repeated long before."""


class PatientLearner(learner.Learner):
    """A client that suspects a peer after a `patience` of silence.

    `heard_s`: when each was heard of last; `began_s`: when this client began, in this life, and
    `iterations_before`: what it had done by then.
    """

    settings: PatientSettings

    def __init__(
        self,
        name: str,
        surroundings: learner.Surroundings,
        compute: learner.Compute,
        settings: learner.ProtocolSettings,
    ) -> None:
        super().__init__(name, surroundings, compute, settings)
        self.wait_at_first(self.settings.patience)
        self.heard_s: dict[str, float] = {}
        self.began_s, self.iterations_before = 0.0, 0
        self.begin()

    def begin(self) -> None:
        """Set up what the method's clients keep."""

    async def run(self) -> None:
        self.began_s, self.iterations_before = self.now, self.iterations
        await super().run()

    def heard(self, message: object, sender: str) -> bool:
        self.heard_s[sender] = self.now
        return super().heard(message, sender)

    def suspect_if_silent(self, peer: str) -> None:
        """`peer` has not answered: suspect it if nothing else was heard of it for all the patience."""
        if self.now - max(self.heard_s.get(peer, -math.inf), self.began_s) >= self.settings.patience:
            self.suspect(peer)
