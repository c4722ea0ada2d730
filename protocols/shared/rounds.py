"""Rounds with a barrier among neighbours: what the synchronous forms of all methods share.

A client announces its model for a round and waits for those of its neighbours, and for nobody else. There is
no global barrier: two clients without a common neighbour may be several rounds apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from actors.message import ActorError
from protocols.framework.client import Client, ProtocolSettings, Requirement
from protocols.framework.node import two_way_links
from protocols.framework.vectors import Vector


@dataclass(frozen=True)
class RoundModel:
    """The sender's `params` at the start of `round`, at `time` (s), and `degree`, how many neighbours it has.

    `partner`: whether the sender takes the receiver for a partner in this round, and so waits for it. It does
    not when the receiver is new to it, or not among its peers although it is among the receiver's.
    `repeated`: whether it was sent before, and is sent again because the receiver has missed it; `attempt`:
    which reminder has made it so, if one has. `delayed`: for how long (s) the sender had to wait for others
    that were late, before this round.
    """

    params: Vector
    round: int
    degree: int
    time: float
    partner: bool = True
    repeated: bool = False
    attempt: int = 0
    delayed: float = 0.0


@dataclass(frozen=True)
class RoundModelWanted:
    """The sender waits in `round` for the receiver's model of it.

    Whoever has announced that round, or a later one, sends it again; whoever has yet to get there will.
    `attempt`: how often it was asked for, from 1 on.
    """

    round: int
    attempt: int = 0


class Repeatable(Protocol):
    """What is waited for in a round."""

    @property
    def repeated(self) -> bool:
        """Whether it was sent before."""

    @property
    def delayed(self) -> float:
        """For how long its sender was kept from sending it, in seconds."""


def delay_s(messages: Iterable[Repeatable], excess_s: float) -> float:
    """How much of the time that a wait took beyond the usual is due to messages that were lost, in seconds.

    All of it if one of those that came was repeated; else what their senders were kept waiting in turn.
    """
    due_s = [math.inf if message.repeated else message.delayed for message in messages]
    return max(0.0, min(excess_s, max(due_s, default=0.0)))


class RoundLearner(Client):
    """A learner that can take part in rounds: `announce`, `gather`, and then `self.round += 1` in its step.

    A round is among those who were peers when it began: who leaves meanwhile is not waited for, and a
    newcomer takes part in the next one. A neighbour whose model is overdue is reminded, and sends that of
    this round again although it may be in the next one; it is suspected after a patience. Who missed rounds
    (a newcomer, or one that was waited for in vain) sees the others' models of a later round and goes on from
    there. Who has spent its budget begins no round, and answers those of others with the model that it has.
    """

    machinery = True
    collected: ClassVar[tuple[type, ...]] = (RoundModel,)
    round = 0
    """The number of the current round. The method counts it, once what came of it is mixed."""
    degree = 0
    """How many partners the current round began with."""
    announced: RoundModel | None = None
    """What was sent for the current round."""
    announced_before: RoundModel | None = None
    """What was sent for the round before it, while a partner may still be there and have missed it."""
    delayed = 0.0
    """For how long (s) the last round waited for those that were late."""
    partners: tuple[str, ...] = ()
    """Who takes part in the current round beside this client."""
    told: frozenset[str] = frozenset()
    """Who was sent `announced`; never iterated over."""
    _gathered: int | None = None  # the last round whose models it has

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return two_way_links(settings)

    @property
    def announcement(self) -> Vector:
        """What the others are sent of the current model: all of it, unless a method sends a part."""
        return self.params

    def announce(self) -> None:
        """Send the current model to all peers, for the current round."""
        self.partners = tuple(self.peers)
        self.told = frozenset(self.partners)
        self.degree = len(self.partners)
        self.announced_before = self.announced
        self.announced = RoundModel(
            self.announcement, self.round, self.degree, self.now, delayed=self.delayed
        )
        for peer in self.partners:
            self.tell(peer, self.announced)

    async def gather(self, patience: float) -> dict[str, RoundModel]:
        """The partners' models of the current round, once all have come or `patience` seconds have passed.

        By the partners' names, without those that did not come; `models[peer].params` are the parameters.
        """
        models: dict[str, RoundModel] = {}
        began_s = self.now
        while True:
            missing = [peer for peer in self.partners if peer not in models]
            models |= await self.collect(
                RoundModel,
                missing,
                timeout=patience,
                where=self.is_wanted,
                reminder=RoundModelWanted(self.round),
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
        usual_s = self.round_trips.usual_s(self.partners, RoundModel)
        self.delayed = delay_s(models.values(), self.now - began_s - usual_s)
        self.announced_before = None
        self.discard(RoundModel, lambda model: model.round <= self.round)
        for model in models.values():
            self.observe("staleness", self.now - model.time)
        self._gathered = self.round
        return models

    def finish_iteration(self) -> None:
        if self._gathered == self.round:  # its next models would be taken for those of the round before
            raise ActorError(
                f"step() of {type(self).__name__} ended in round {self.round} and did not count it: "
                "write self.round += 1 behind gather()"
            )
        super().finish_iteration()

    def is_wanted(self, model: RoundModel) -> bool:
        """Whether a model is of the current round, or shows that its sender went on without this client.

        A partner's next one does not: that it sent the current one, which is lost, and will send it again.
        """
        return model.round == self.round or model.round > self.round + (model.partner and not model.repeated)

    def heard(self, message: object, sender: str) -> bool:
        done = super().heard(message, sender)
        if self.finished:
            return self.heard_when_finished(message, sender) or done
        if self.announced is None:
            return done or type(message) is RoundModelWanted
        match message:
            case RoundModel(round=number, repeated=False) if sender not in self.told or number < self.round:
                # It is new to us, or has lost what we sent, being down or cut off. It would wait for our next
                # round, and we, perhaps, for it.
                self.repeat(number, sender)
            case RoundModelWanted(number, attempt) if number <= self.announced.round:
                self.round_trips.lossy = True
                self.repeat(number, sender, attempt)
        return done or type(message) is RoundModelWanted

    def heard_when_finished(self, message: object, sender: str) -> bool:
        """Send the final model to whoever waits for this client, which takes part in no round any more."""
        match message:
            case RoundModel(round=number, partner=partner):
                attempt = 0
            case RoundModelWanted(number, attempt):
                partner = True
            case _:
                return False
        if partner:
            last = RoundModel(self.announcement, number, len(self.peers), self.now, partner=False)
            self.tell(sender, replace(last, repeated=attempt > 0, attempt=attempt))
        return True

    def repeat(self, number: int, peer: str, attempt: int = 0) -> None:
        """Send `peer` once more what was announced for a round; if that is too long ago, for the current."""
        self.told |= {peer}
        before = self.announced_before
        model = before if before is not None and before.round == number else self.announced
        assert model is not None
        partner = peer in self.partners
        self.tell(peer, replace(model, partner=partner, repeated=True, attempt=attempt, delayed=0.0))

    def peer_changed(self, peer: str, up: bool) -> None:
        super().peer_changed(peer, up)
        if not up:
            self.partners = tuple([partner for partner in self.partners if partner != peer])
