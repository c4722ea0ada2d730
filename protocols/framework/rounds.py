"""Rounds with a barrier among neighbors, for the synchronous forms of all methods.

A client announces its model for a round and waits only for the models of its neighbors. There is no global
barrier: two clients that are not neighbors may be several rounds apart. `actors.delivery.round_messages`
sends lost messages again. This module decides which peers take part in a round and when it ends.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from actors.arguments import require_seconds
from actors.delivery.round_messages import RoundMessages, round_mark
from actors.message import RepeatRequest, RoundMark
from protocols.framework.client import Client
from protocols.framework.component import Component, weak_callback
from protocols.framework.vectors import Vector

M = TypeVar("M")


@dataclass(frozen=True)
class RoundModel:
    """Model of the sender when it announced a round, at `time` (s); `degree`: number of its neighbors."""

    params: Vector
    degree: int
    time: float


class Rounds(Component, RoundMessages):
    """Rounds of one client: `announce`, `gather`, optionally `tell` and `replies`, in each step.

    A round takes place among the peers at its start: the client does not wait for peers that leave during the
    round, and a newcomer takes part in the next round. A peer that stays silent for `patience` seconds is
    suspected. A client that missed rounds (a newcomer, or a client for which others stopped waiting) receives
    the others' models of a later round and continues with that round. A client that has exhausted its budget
    starts no round, and answers the rounds of others with its current model.

    announced: creates the message for all partners (default: a `RoundModel` of `params`); its class must be
    in the client's `collected`. It may be called several times in a step. neighbours: names of the peers that
    take part (default: all peers). missed(peer): called when a partner stayed silent (default: `suspect`).
    refuses(peer): returns True if a peer that waits for this client gets no answer.

    `staleness` is recorded only for `RoundModel`s: with your own message class, call `observe` yourself.
    """

    def __init__(
        self,
        client: Client,
        patience: float,
        *,
        announced: Callable[[], object] | None = None,
        neighbours: Callable[[], Collection[str]] | None = None,
        missed: Callable[[str], None] | None = None,
        refuses: Callable[[str], bool] | None = None,
    ) -> None:
        require_seconds(patience, "Rounds", "the patience")
        Component.__init__(self, client)
        RoundMessages.__init__(self, client)
        self.patience = patience
        self.partners: tuple[str, ...] = ()
        """Peers that take part in the current round with this client."""
        self.degree = 0
        """Number of partners at the start of the current round."""
        self._announced = weak_callback(announced or self._own_model)
        self._neighbours = weak_callback(neighbours) if neighbours else None
        self._missed = weak_callback(missed or client.suspect)
        self._refuses = weak_callback(refuses) if refuses else None
        self._recipients: frozenset[str] | None = None  # of the present round; None before the first
        self._kind: type | None = None
        self._gathered = False
        self._not_waiting: frozenset[str] = frozenset()
        # Peers, by the later round for which they got a model with the mark that this client waits for none.
        self._left_out: dict[str, int] = {}

    def announce(self) -> None:
        """Send this client's model for the current round to all neighbors."""
        names = self._neighbours() if self._neighbours else self.client.peers
        self.partners = tuple([name for name in names if self._left_out.get(name) != self.number])
        self.degree = len(self.partners)
        self._recipients = frozenset(self.partners)
        self.awaited = self._recipients
        message = self._announced()
        self._kind = type(message)
        self.tell_all(self.partners, message)

    async def gather(self) -> dict[str, Any]:
        """Wait for the partners' announcements of the current round, and return them by name.

        Missing partners are left out; `models[peer].params` are the parameters of a `RoundModel`.
        """
        kind = self._kind
        assert kind is not None, "call announce() before gather()"
        found: dict[str, Any] = {}
        while True:
            missing = [peer for peer in self.partners if peer not in found]
            found |= await self.collect(kind, missing, self.patience, where=self._is_wanted)
            for peer in self.partners:  # peers that left meanwhile are no longer partners
                if peer not in found:
                    self._missed(peer)
            latest = max([round_mark(envelope).number for envelope in found.values()], default=self.number)
            if latest == self.number:
                break
            # A neighbor announces round r + 1 only after it has finished round r. If its first message to
            # this client is of a later round, it continued without this client.
            self.start_round(latest)
            self.announce()
            found = {
                peer: each
                for peer, each in found.items()
                if round_mark(each).number == latest and peer in self.partners
            }
        self.awaited = frozenset(found)  # repeated messages state whether the receiver takes part
        self.forget_before(kind)
        self.discard(kind)
        self._not_waiting = frozenset([peer for peer, each in found.items() if not round_mark(each).awaits])
        self._gathered = True
        models = {peer: envelope.message for peer, envelope in found.items()}
        for model in models.values():
            if isinstance(model, RoundModel):
                self.client.context.report(self.client.name, "staleness", self.client.now - model.time)
        return models

    def is_mutual(self, peer: str) -> bool:
        """Return True if `peer`, whose model was gathered, also waits for this client in the current round.

        A peer that does not wait, for example because it has finished, sends no `replies`.
        """
        return peer not in self._not_waiting

    async def replies(self, kind: type[M], peers: Collection[str]) -> dict[str, M]:
        """Return the messages of class `kind` from these partners, by name. Send them your message first."""
        found = await self.collect(kind, [peer for peer in peers if peer in self.partners], self.patience)
        self.discard(kind)
        return {peer: envelope.message for peer, envelope in found.items()}  # type: ignore[misc]

    def step_ended(self) -> None:
        """End the round if its models were gathered."""
        if self._gathered:
            self.start_round(self.number + 1)
            self._gathered = False

    def budget_spent(self) -> None:
        self.close()

    def peer_changed(self, peer: str, up: bool) -> None:
        if not up:
            self.partners = tuple([partner for partner in self.partners if partner != peer])
            self.awaited = frozenset(self.awaited) - {peer}

    def _is_wanted(self, mark: RoundMark) -> bool:
        """Return True if a message belongs to the current round, or its sender is ahead of this client.

        A partner's announcement of the next round is not sufficient: the partner's announcement of the
        current round was lost, and will be sent again.
        """
        is_partners_own = mark.awaits and mark.repeat is None
        first_late = self.number + 2 if is_partners_own else self.number + 1
        return mark.number == self.number or mark.number >= first_late

    def round_message_received(self, peer: str, kind: type, mark: RoundMark) -> None:
        if self.client.finished:
            if mark.awaits and not self._is_refused(peer) and type(final := self._announced()) is kind:
                self.tell_for(peer, final, mark.number)
            return
        if self._recipients is None or self._kind is not kind or mark.repeat is not None:
            return
        # The peer is new to this client, or was down or cut off and lost earlier messages. Without a message
        # now, it would wait for this client's next round, and perhaps this client for it.
        if peer in self._recipients:
            if mark.number < self.number:
                self.tell_again(peer, kind.__name__, mark.number)
        elif mark.awaits and not self._is_refused(peer):
            self._recipients |= {peer}
            if not self.tell_again(peer, kind.__name__, mark.number):
                self._left_out[peer] = mark.number
                self.tell_for(peer, self._announced(), mark.number)

    def requested(self, peer: str, request: RepeatRequest) -> None:
        if self._is_refused(peer):
            return
        if self.client.finished and type(final := self._announced()).__name__ == request.kind:
            self.tell_for(peer, final, request.number, request.attempt)
        else:
            super().requested(peer, request)

    def _is_refused(self, peer: str) -> bool:
        return self._refuses is not None and self._refuses(peer)

    def _own_model(self) -> RoundModel:
        return RoundModel(self.client.params, len(self.client.peers), self.client.now)
