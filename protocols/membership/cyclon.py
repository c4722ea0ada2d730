"""Cyclon: a small random view of all clients that changes continually, kept by exchanging entries.

Voulgaris, Gavidia, van Steen, "CYCLON: inexpensive membership management for unstructured P2P overlays",
2005, section 2.3 (enhanced shuffling). A view holds names with their ages, in shuffles. Once per period a
client

1. increases all ages by one, and picks the oldest entry, Q;
2. sends Q some other random entries and a new entry for itself;
3. receives some of Q's entries; they fill Q's entry and free positions, and then replace the entries that
   were sent.

A client that does not answer until the next shuffle is removed from the view, so crashed clients disappear.

Differences from the paper: a newcomer starts with some contacts and shuffles with one of them at once, not
by random walks. A client with an empty view asks for contacts again.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocols.membership.swim import sample
from protocols.membership.view import MembershipMessage, RandomSource, Tell

Entry = tuple[str, int]
"""Name of a peer, and the age of this entry in shuffles."""


@dataclass(frozen=True, slots=True)
class CyclonRequest(MembershipMessage):
    """Some of the sender's entries, including one for itself; answered by a `CyclonReply`."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class CyclonReply(MembershipMessage):
    """Answer to a `CyclonRequest`: some entries of the client that was asked."""

    entries: tuple[Entry, ...]


class Cyclon:
    """Cyclon in one client.

    contacts(): returns some other clients, for the start. view_size, shuffle_size: entries in a view, and in
    a message. `changed()` is called when the names in the view have changed. `refused(name)`: returns True
    for a client that must not enter the view, because it is known to be dead.
    """

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        draws: RandomSource,
        contacts: Callable[[], Sequence[str]],
        *,
        view_size: int,
        shuffle_size: int,
        every_s: float,
        changed: Callable[[], None],
        refused: Callable[[str], bool],
    ) -> None:
        if not 1 <= shuffle_size <= view_size:
            raise ValueError(f"shuffle_size = {shuffle_size}: must be from 1 to view_size = {view_size}")
        self.name = name
        self.view: dict[str, int] = {}
        self._loop = loop
        self._draws = draws
        self._contacts = contacts
        self._view_size = view_size
        self._shuffle_size = shuffle_size
        self._every_s = every_s
        self._changed = changed
        self._refused = refused
        self._tell: Tell | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._partner: str | None = None
        self._sent: list[str] = []
        self._meet_contacts()

    def start(self, tell: Tell, *, at_once: bool) -> None:
        """Start to shuffle, at once (a newcomer) or after a random part of the period."""
        self._tell = tell
        wait_s = 0.0 if at_once else self._every_s * self._draws.uniform()
        self._timer = self._loop.call_later(wait_s, self._shuffle)

    def restart(self, tell: Tell) -> None:
        """Start later than the others, or again after an absence, with contacts only."""
        self.view.clear()
        self._partner, self._sent = None, []
        self._meet_contacts()
        self._changed()
        self.start(tell, at_once=True)

    def stop(self) -> None:
        """Stop sending: this client is down."""
        self._tell = None
        if self._timer is not None:
            self._timer.cancel()

    def remove(self, name: str) -> None:
        """Remove a client from the view."""
        if self.view.pop(name, None) is not None:
            self._changed()

    def _meet_contacts(self) -> None:
        self.view.update(dict.fromkeys(self._contacts()[: self._view_size], 0))

    def _shuffle(self) -> None:
        assert self._tell is not None  # the timer ends with the client
        self._timer = self._loop.call_later(self._every_s, self._shuffle)
        if self._partner is not None:  # it has not answered
            self.remove(self._partner)
        if not self.view:
            self._meet_contacts()
            self._changed()
        for name in self.view:
            self.view[name] += 1
        self._partner = max(self.view, key=self.view.__getitem__, default=None)
        if self._partner is None:
            return
        others = [name for name in self.view if name != self._partner]
        self._sent = sample(self._draws, others, self._shuffle_size - 1)
        entries = [(self.name, 0), *[(name, self.view[name]) for name in self._sent]]
        self._tell(self._partner, CyclonRequest(tuple(entries)))

    def receive(self, message: object, sender: str) -> bool:
        """Handle a message; return False if it is not one of Cyclon's."""
        match message:
            case CyclonRequest(entries):
                if self._tell is not None:
                    sent = sample(
                        self._draws, [name for name in self.view if name != sender], self._shuffle_size
                    )
                    self._tell(sender, CyclonReply(tuple([(name, self.view[name]) for name in sent])))
                    self._merge(entries, sent)
            case CyclonReply(entries):
                if self._tell is not None and sender == self._partner:
                    self._partner = None
                    self.view.pop(sender, None)  # makes room for its entries; it now has this client's
                    self._merge(entries, self._sent)
            case _:
                return False
        return True

    def _merge(self, entries: Sequence[Entry], sent: Sequence[str]) -> None:
        replaceable = list(sent)
        for name, age in entries:
            if name == self.name or name in self.view or self._refused(name):
                continue
            if len(self.view) >= self._view_size:
                while replaceable and replaceable[-1] not in self.view:
                    replaceable.pop()
                if not replaceable:
                    break
                del self.view[replaceable.pop()]
            self.view[name] = age
        self._changed()
