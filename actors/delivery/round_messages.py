"""Messages of rounds: kept, requested when they are overdue, sent again on request, and handled once.

An actor that works in rounds sends its peers a message of a numbered round, and waits for their messages of
the same round. This module handles lost messages: the number of the round and the known delays travel as a
`RoundMark` on the envelope, so that the messages themselves need no fields for them.

- Messages for the present round and the previous one are kept, and sent again when a peer requests them.
- An actor that waits for a message requests it whenever it is overdue (`actors.delivery.reminders`).
- A message that is not collected goes to `on_message`, once, even if it was sent several times. If its answer
  is a message of the same round, a request for this answer names the class of the question; an actor that has
  not received the question then requests it.
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
"""Number of a round, and a message that was sent for it."""


def round_mark(envelope: Envelope) -> RoundMark:
    """Return the mark of a message of a round."""
    mark = envelope.request
    assert isinstance(mark, RoundMark)
    return mark


@contextmanager
def temporary_round_messages(actor: Actor) -> Iterator[RoundMessages]:
    """Yield an actor's `RoundMessages`; an actor without rounds gets a new object, for this context only."""
    before = actor._rounds
    try:
        yield before if isinstance(before, RoundMessages) else RoundMessages(actor)
    finally:
        actor._rounds = before


class RoundMessages:
    """Messages of one actor's rounds, sent and received; an actor uses the most recently created instance.

    number: the number of the current round. awaited: peers that this actor waits for, or has received from,
    in this round. delayed_s: seconds by which lost messages have delayed the actor in this round; until it
    has collected a message in this round, the value of the previous round.
    """

    earlier: ClassVar[int] = 1
    """Number of rounds before the current one for which messages to all peers are kept."""
    reminders: ClassVar[type[Reminders]] = Reminders

    def __init__(self, actor: Actor) -> None:
        self.number = 0
        """Number of the current round, starting at 0."""
        self.awaited: Collection[str] = ()
        self.delayed_s = 0.0
        self.closed = False
        """True if this actor has left the rounds: further messages only reach `round_message_received`."""
        self._actor: Actor = proxy(actor)  # a strong reference would keep an ended actor in memory
        self._awaited_before: Collection[str] = ()  # in the round before
        self._delayed_in: int | None = None  # round of `delayed_s`
        self._delayed_before_s = 0.0  # in the round before
        self._to_all: dict[str, list[Kept]] = {}  # by class
        self._to_one: dict[str, dict[str, list[Kept]]] = {}  # by class and receiver
        self._handled: dict[tuple[str, str], tuple[int, ...]] = {}  # by class and sender: the last two rounds
        # By class and sender: the round in which its question was a repetition.
        self._handled_late: dict[tuple[str, str], int] = {}
        actor._rounds = self

    def start_round(self, number: int) -> None:
        """Start round `number`. Messages to single peers are kept for one more round, and then dropped."""
        self._awaited_before = self.awaited if number == self.number + 1 else ()
        self.number = number
        for kept in self._to_one.values():
            for peer in [peer for peer, sent in kept.items() if sent[-1][0] < number - 1]:
                del kept[peer]

    def tell(self, peer: str, message: object, number: int | None = None, after: type | None = None) -> None:
        """Send one peer a message of this round, or of round `number`; each peer may get a different message.

        after: class of the peer's message that this one answers.
        """
        number = self.number if number is None else number
        kept = self._to_one.setdefault(type(message).__name__, {})
        kept[peer] = [*[sent for sent in kept.get(peer, [])[-1:] if sent[0] < number], (number, message)]
        # If the question was a repetition, the answer does not measure how long this actor took.
        late = after is not None and self._handled_late.pop((after.__name__, peer), None) == number
        # An answer was possible when this round started: delays since then do not count for it.
        waited = after is not None and self._delayed_in == number
        delayed_s = self._delayed_before_s if waited else self.delayed_s
        self._send(peer, message, number, 0 if late else None, delayed_s)

    def tell_all(self, peers: Iterable[str], message: object) -> None:
        """Send all peers the same message of this round; other peers that request it also get it."""
        kind = type(message).__name__
        before = [sent for sent in self._to_all.get(kind, [])[-self.earlier :] if sent[0] < self.number]
        self._to_all[kind] = [*before, (self.number, message)]
        for peer in peers:
            self._send(peer, message, self.number, None, self.delayed_s)

    def tell_again(self, peer: str, kind: str, number: int, attempt: int = 0) -> bool:
        """Send a peer the message of class `kind` and round `number` again.

        If that message was dropped, send the last message of class `kind` to all peers instead. attempt:
        number of the peer's request; 0 without a request. Returns False if there is no message for this round
        yet.
        """
        kept = self._to_one.get(kind, {}).get(peer, [])
        found = [sent for sent in kept if sent[0] == number]
        if not found:
            shared = self._to_all.get(kind, [])
            found = [sent for sent in shared if sent[0] == number] or shared[-1:]
            if not found or found[0][0] < number:
                return False
        sent_number, message = found[0]
        self._send(peer, message, sent_number, attempt, 0.0)
        return True

    def tell_for(self, peer: str, message: object, number: int, attempt: int | None = None) -> None:
        """Send a message that belongs to round `number` of `peer`, without waiting for others in that round.

        attempt: number of the peer's request that this message answers; 0 or None without a request.
        """
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
        """Return envelopes with messages of this round, of class `kind`, from `peers`, by sender.

        Peers that stay silent for `timeout_s` seconds are missing. where: returns True for the marks of
        messages to accept (default: of this round). after: class of this round's messages to which messages
        of class `kind` are the answers. Raises ActorError for a class that is not in the actor's `collected`.
        """
        actor, number, started_s = self._actor, self.number, self._actor.now
        actor._require_collected(kind)
        names = list(peers)

        def is_wanted(envelope: Envelope) -> bool:
            mark = envelope.request
            if not isinstance(mark, RoundMark):
                return False
            return mark.number == number if where is None else where(mark)

        def request(peer: str, attempt: int) -> None:
            answered = None if after is None else after.__name__
            self._ask(peer, RepeatRequest(kind.__name__, number, attempt, answered))

        found = await actor._mailbox.collect(
            kind,
            names,
            timeout=timeout_s,
            where=is_wanted,
            watch=self.reminders(request, actor.round_trips, kind, timeout_s),
        )
        self._actor._round_waits += bool(names)
        self._actor._round_waits_in_vain += bool(names and not found)
        self._record_delay(kind, names, found.values(), actor.now - started_s)
        return found

    def discard(self, kind: type) -> None:
        """Drop the messages of class `kind`, of this and earlier rounds, for which no call waits."""
        number = self.number
        self._actor._mailbox.discard(kind, lambda envelope: round_mark(envelope).number <= number)

    def forget_before(self, kind: type) -> None:
        """Drop kept messages to all peers, of class `kind` and of rounds up to `number` minus `earlier`.

        Call it when every peer has the current round's message.
        """
        kept = self._to_all.get(kind.__name__, [])
        self._to_all[kind.__name__] = [sent for sent in kept if sent[0] > self.number - self.earlier]

    def arrived(self, envelope: Envelope) -> None:
        """Answer a request; keep other messages for `collect` or `on_message`."""
        message, sender, mailbox = envelope.message, envelope.sender, self._actor._mailbox
        if isinstance(message, RepeatRequest):
            self.requested(sender, message)
            return
        mark, kind = round_mark(envelope), type(message)
        self._actor.round_trips.lossy |= mark.delayed_s > 0.0
        self.round_message_received(sender, kind, mark)
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
        """Leave the rounds: pass the waiting messages to `round_message_received`, and drop them."""
        self.closed = True
        mailbox = self._actor._mailbox
        kept = [each for each in mailbox.contents if isinstance(each.request, RoundMark)]
        for envelope in kept:
            self.round_message_received(envelope.sender, type(envelope.message), round_mark(envelope))
        for kind in {type(envelope.message) for envelope in kept}:
            mailbox.discard(kind)

    def forget(self, peer: str) -> None:
        """Forget the messages to and from a peer that has left."""
        for kept in self._to_one.values():
            kept.pop(peer, None)
        self._handled = {key: number for key, number in self._handled.items() if key[1] != peer}
        self._handled_late = {key: number for key, number in self._handled_late.items() if key[1] != peer}

    def round_message_received(self, sender: str, kind: type, mark: RoundMark) -> None:
        """Handle sender, class and mark of each message of a round, before the message is kept."""

    def requested(self, sender: str, request: RepeatRequest) -> None:
        """Answer a peer's request for an overdue message."""
        handled = self._handled.get((request.after or "", sender), ())
        if self.tell_again(sender, request.kind, request.number, request.attempt):
            # A message to one peer alone is an answer, which may only have been slow.
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

    def _record_delay(self, kind: type, names: list[str], found: Iterable[Envelope], waited_s: float) -> None:
        """Record the part of the wait beyond the usual time as a delay, if a message was sent again."""
        marks = [round_mark(envelope) for envelope in found]
        due_s = [mark.delayed_s if mark.repeat is None else math.inf for mark in marks]
        excess_s = waited_s - self._actor.round_trips.usual_s(names, kind)
        if self._delayed_in != self.number:
            self._delayed_before_s, self.delayed_s = self.delayed_s, 0.0
        before_s, self._delayed_in = self.delayed_s, self.number
        self.delayed_s = before_s + max(0.0, min(excess_s, max(due_s, default=0.0)))
