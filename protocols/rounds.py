"""Rounds with a barrier among neighbours: what the synchronous forms of all methods share.

A client announces its model for a round and waits for those of its neighbours, and for nobody else. There is
no global barrier: two clients without a common neighbour may be several rounds apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from protocols import learner
from protocols.vectors import Vector


@dataclass(frozen=True)
class RoundModel:
    """The sender's parameters at the start of `round`, at `time` (s), and how many neighbours it counts.

    `partner`: whether the sender takes the receiver for a partner in this round, and so waits for it. It does
    not when the receiver is new to it, or not among its peers although it is among the receiver's.
    """

    params: Vector
    round: int
    degree: int
    time: float
    partner: bool = True


class RoundLearner(learner.Learner):
    """A learner that can take part in rounds; `round` is the number of the current one.

    A round is among those who were peers when it began: who leaves meanwhile is not waited for, silent ones
    are suspected after a patience, and a newcomer takes part in the next one. Who missed rounds (a newcomer,
    or one that was waited for in vain) sees the others' models of a later round and goes on from there. Who
    has spent its budget begins no round, and answers those of others with the model that it has.
    """

    collected: ClassVar[tuple[type, ...]] = (RoundModel,)
    round = 0
    degree = 0
    """How many partners the current round began with."""
    announced: RoundModel | None = None
    """What was sent for the current round."""
    partners: tuple[str, ...] = ()
    """Who takes part in the current round beside this client."""
    told: frozenset[str] = frozenset()
    """Who was sent `announced`; never iterated over."""

    def announce(self) -> None:
        """Send the current model to all peers, for the current round."""
        self.partners = tuple(self.peers)
        self.told = frozenset(self.partners)
        self.degree = len(self.partners)
        self.announced = RoundModel(self.params, self.round, self.degree, self.now)
        for peer in self.partners:
            self.tell(peer, self.announced)

    async def gather(self, patience: float) -> dict[str, RoundModel]:
        """The partners' models of the current round, once all have come or `patience` seconds have passed."""
        models: dict[str, RoundModel] = {}
        while True:
            missing = [peer for peer in self.partners if peer not in models]
            models |= await self.collect(
                RoundModel, missing, timeout=patience, where=lambda model: model.round >= self.round
            )
            for peer in self.partners:  # those that left meanwhile are no partners any more
                if peer not in models:
                    self.suspect(peer)
            latest = max([model.round for model in models.values()], default=self.round)
            if latest == self.round:
                break
            # A neighbour sends round r + 1 only after round r. That its first message to us is of a later
            # round means that it went on without us.
            self.round = latest
            self.announce()
            models = {peer: model for peer, model in models.items() if model.round == latest}
        self.discard(RoundModel, lambda model: model.round <= self.round)
        for model in models.values():
            self.observe("staleness", self.now - model.time)
        return models

    def heard(self, message: object, sender: str) -> bool:
        done = super().heard(message, sender)
        if isinstance(message, RoundModel) and self.finished:
            if message.partner:  # it waits for us, who take part in no round any more
                last = RoundModel(self.params, message.round, len(self.peers), self.now, partner=False)
                self.tell(sender, last)
            return True
        if (
            isinstance(message, RoundModel)
            and self.announced is not None
            and (sender not in self.told or message.round < self.round)
        ):
            # It is new to us, or has lost what we sent, being down or cut off. It would wait for our next
            # round, and we, perhaps, for it.
            self.told |= {sender}
            self.tell(sender, replace(self.announced, partner=sender in self.partners))
        return done

    def peer_changed(self, peer: str, up: bool) -> None:
        super().peer_changed(peer, up)
        if not up:
            self.partners = tuple([partner for partner in self.partners if partner != peer])
