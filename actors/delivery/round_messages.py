"""Messages told for a round: kept, asked for when they are overdue, told again on request, handled once.

An actor that works in rounds tells its peers a message of a numbered round, and waits for theirs of the same
round. Whatever is lost on the way is the business of this module: the number and what is known of delays
travel as a `RoundMark` on the envelope, so that the messages themselves know nothing of it.

- What was told for the present round and the one before is kept, and told again when a peer asks for it.
- Who waits for a message asks for it whenever it is overdue (`actors.delivery.reminders`).
- A message that is not collected goes to `on_message`, once however often it was told. If its answer is a
  message of the same round, a request for this answer names the class of the question; an actor that has not
  got the question then asks for it in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar
from weakref import proxy

from actors.actor import Actor
from actors.delivery.reminders import Reminders
from actors.message import Envelope, RepeatRequest, RoundMark

Kept = tuple[int, object]
"""The number of a round, and what was told for it."""


def mark_of(envelope: Envelope) -> RoundMark:
    """The mark of a message that was told for a round."""
    mark = envelope.request
    assert isinstance(mark, RoundMark)
    return mark


@contextmanager
def borrowed_rounds(actor: Actor) -> Iterator[RoundMessages]:
    """The messages of an actor's rounds; one without rounds has some until this ends."""
    before = actor._rounds
    try:
        yield before if isinstance(before, RoundMessages) else RoundMessages(actor)
    finally:
        actor._rounds = before


class RoundMessages:
    """The messages of one actor's rounds: those that it tells and those that it gets; the latest made counts.

    number: that of the present round. awaited: peers that this actor waits for in this round, or has heard.
    delayed_s: for how many seconds lost messages have kept it waiting in this round; until something is
    collected in this round, those of the round before.
    """

    earlier: ClassVar[int] = 1
    """For how many rounds before the present one the messages to all are kept."""
    reminders: ClassVar[type[Reminders]] = Reminders

    def __init__(self, actor: Actor) -> None:
        self.number = 0
        """The number of the present round, from 0 on."""
        self.awaited: Collection[str] = ()
        self.delayed_s = 0.0
        self.closed = False
        """Whether this actor takes part in no round any more: what comes for one is only heard."""
        self._actor: Actor = proxy(actor)  # an actor that is gone for good must leave nothing behind
        self._awaited_before: Collection[str] = ()  # in the round before
        self._delayed_in: int | None = None  # the round that `delayed_s` is of
        self._delayed_before_s = 0.0  # in the one before
        self._to_all: dict[str, list[Kept]] = {}  # by class
        self._to_one: dict[str, dict[str, list[Kept]]] = {}  # by class and receiver
        self._handled: dict[tuple[str, str], tuple[int, ...]] = {}  # by class and sender: the last two rounds
        # By class and sender: the round of which its question was told again.
        self._handled_late: dict[tuple[str, str], int] = {}
        actor._rounds = self

    def begin_round(self, number: int) -> None:
        """Go on to round `number`. What each peer was told is kept for the round before, and no longer."""
        self._awaited_before = self.awaited if number == self.number + 1 else ()
        self.number = number
        for kept in self._to_one.values():
            for peer in [peer for peer, told in kept.items() if told[-1][0] < number - 1]:
                del kept[peer]

    def tell(self, peer: str, message: object, number: int | None = None, after: type | None = None) -> None:
        """Tell one peer a message of this round, or of round `number`, of which each peer gets its own.

        after: the class of the peer's message that this one answers.
        """
        number = self.number if number is None else number
        kept = self._to_one.setdefault(type(message).__name__, {})
        kept[peer] = [*[told for told in kept.get(peer, [])[-1:] if told[0] < number], (number, message)]
        # If the question was told again, the answer does not measure how long this actor took.
        late = after is not None and self._handled_late.pop((after.__name__, peer), None) == number
        # An answer was possible when this round began: delays since then do not count for it.
        waited = after is not None and self._delayed_in == number
        delayed_s = self._delayed_before_s if waited else self.delayed_s
        self._send(peer, message, number, 0 if late else None, delayed_s)

    def tell_all(self, peers: Iterable[str], message: object) -> None:
        """Tell all peers the same message of this round; who asks for it without being one gets it, too."""
        kind = type(message).__name__
        before = [told for told in self._to_all.get(kind, [])[-self.earlier :] if told[0] < self.number]
        self._to_all[kind] = [*before, (self.number, message)]
        for peer in peers:
            self._send(peer, message, self.number, None, self.delayed_s)

    def tell_again(self, peer: str, kind: str, number: int, attempt: int = 0) -> bool:
        """Send a peer again the message told for round `number`, or if that has gone the last one to all.

        False if there is none yet for this round.
        """
        kept = self._to_one.get(kind, {}).get(peer, [])
        found = [told for told in kept if told[0] == number]
        if not found:
            shared = self._to_all.get(kind, [])
            found = [told for told in shared if told[0] == number] or shared[-1:]
            if not found or found[0][0] < number:
                return False
        told_number, message = found[0]
        self._send(peer, message, told_number, attempt, 0.0)
        return True

    def tell_for(self, peer: str, message: object, number: int, attempt: int | None = None) -> None:
        """Tell a message for a round that is another's, in which this actor waits for nobody."""
        mark = RoundMark(number, False, attempt or None, 0.0)
        self._actor._send_marked(Envelope(self._actor.name, peer, message, mark))

    async def collect(
        self,
        kind: type,
        peers: Iterable[str],
        timeout_s: float,
        *,
        where: Callable[[RoundMark], bool] | None = None,
        after: type | None = None,
    ) -> dict[str, Envelope]:
        """Envelopes with the messages of this round, of class `kind`, from `peers`, by their names.

        Who stays silent for `timeout_s` seconds is missing. where: accepts other rounds, too. after: the
        class of the messages of this round that a `kind` answers. ActorError for a class that is not in the
        actor's `collected`.
        """
        actor, number, began_s = self._actor, self.number, self._actor.now
        actor._require_collected(kind)
        names = list(peers)

        def is_wanted(envelope: Envelope) -> bool:
            mark = envelope.request
            if not isinstance(mark, RoundMark):
                return False
            return mark.number == number if where is None else where(mark)

        def request(peer: str, attempt: int) -> None:
            asked_for = None if after is None else after.__name__
            self._ask(peer, RepeatRequest(kind.__name__, number, attempt, asked_for))

        found = await actor._mailbox.collect(
            kind,
            names,
            timeout=timeout_s,
            where=is_wanted,
            watch=self.reminders(request, actor.round_trips, kind, timeout_s),
        )
        self._actor._round_waits += bool(names)
        self._actor._round_waits_in_vain += bool(names and not found)
        self._note_delay(kind, names, found.values(), actor.now - began_s)
        return found

    def discard(self, kind: type) -> None:
        """Drop what has come of this round, or earlier ones, and nobody waits for."""
        number = self.number
        self._actor._mailbox.discard(kind, lambda envelope: mark_of(envelope).number <= number)

    def forget_before(self, kind: type) -> None:
        """Forget messages to all of earlier rounds: all peers have the present one, and ask for no others."""
        kept = self._to_all.get(kind.__name__, [])
        self._to_all[kind.__name__] = [told for told in kept if told[0] > self.number - self.earlier]

    def arrived(self, envelope: Envelope) -> None:
        """Answer a request; keep a message of a round for `collect` or `on_message`."""
        message, sender, mailbox = envelope.message, envelope.sender, self._actor._mailbox
        if isinstance(message, RepeatRequest):
            self.requested(sender, message)
            return
        mark, kind = mark_of(envelope), type(message)
        self._actor.round_trips.lossy |= mark.delayed_s > 0.0
        self.heard_of_round(sender, kind, mark)
        if kind in self._actor.collected:
            if not self.closed:
                mailbox.put(envelope)
            return
        key = (kind.__name__, sender)
        handled = self._handled.get(key, ())
        if mark.number not in handled and mailbox.put(Envelope(sender, envelope.receiver, message)):
            self._handled[key] = (*handled[-1:], mark.number)
            if mark.repeat is not None:
                self._handled_late[key] = mark.number

    def close(self) -> None:
        """Take part in no round any more: pass what has come to `heard_of_round`, and drop it."""
        self.closed = True
        mailbox = self._actor._mailbox
        kept = [each for each in mailbox.contents if isinstance(each.request, RoundMark)]
        for envelope in kept:
            self.heard_of_round(envelope.sender, type(envelope.message), mark_of(envelope))
        for kind in {type(envelope.message) for envelope in kept}:
            mailbox.discard(kind)

    def forget(self, peer: str) -> None:
        """Forget a peer that is gone: what it was told, and what it had told."""
        for kept in self._to_one.values():
            kept.pop(peer, None)
        self._handled = {key: number for key, number in self._handled.items() if key[1] != peer}
        self._handled_late = {key: number for key, number in self._handled_late.items() if key[1] != peer}

    def heard_of_round(self, sender: str, kind: type, mark: RoundMark) -> None:
        """Called with sender, class and mark of each message of a round, before it is kept."""

    def requested(self, sender: str, request: RepeatRequest) -> None:
        """A peer asks for a message that is overdue there."""
        handled = self._handled.get((request.after or "", sender), ())
        if self.tell_again(sender, request.kind, request.number, request.attempt):
            # What was told to one peer alone is an answer, which may only have been slow.
            self._actor.round_trips.lossy |= request.kind in self._to_all
        elif request.after is not None and request.number not in handled:
            self._actor.round_trips.lossy = True
            self._ask(sender, RepeatRequest(request.after, request.number, request.attempt))

    def _ask(self, peer: str, request: RepeatRequest) -> None:
        mark = RoundMark(request.number, repeat=request.attempt)
        self._actor._send_marked(Envelope(self._actor.name, peer, request, mark))

    def _send(self, peer: str, message: object, number: int, repeat: int | None, delayed_s: float) -> None:
        awaited = self.awaited if number >= self.number else self._awaited_before
        mark = RoundMark(number, peer in awaited, repeat, delayed_s)
        self._actor._send_marked(Envelope(self._actor.name, peer, message, mark))

    def _note_delay(self, kind: type, names: list[str], found: Iterable[Envelope], waited_s: float) -> None:
        """Note how much of a wait was due to lost messages: all beyond the usual if one was told again."""
        marks = [mark_of(envelope) for envelope in found]
        due_s = [mark.delayed_s if mark.repeat is None else math.inf for mark in marks]
        excess_s = waited_s - self._actor.round_trips.usual_s(names, kind)
        if self._delayed_in != self.number:
            self._delayed_before_s, self.delayed_s = self.delayed_s, 0.0
        before_s, self._delayed_in = self.delayed_s, self.number
        self.delayed_s = before_s + max(0.0, min(excess_s, max(due_s, default=0.0)))
