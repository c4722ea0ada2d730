"""Membership: the clients that a client believes to be up, and how it learns of changes.

This module contains the common base, and the kind that sends a message on each join and departure.
"""

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

_NOBODY: frozenset[str] = frozenset()
Tell = Callable[[str, object], object]
"""Function such as `Actor.tell`: `tell(peer, message)` sends the message and does not wait."""


class RandomSource(Protocol):
    """Source of random numbers."""

    def uniform(self) -> float:
        """Return a number in [0, 1)."""


class MembershipMessage:
    """Base class of messages about membership, which are counted separately.

    A view receives no other messages.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Hello(MembershipMessage):
    """Announcement that the sender is up, to all topology neighbors on a join and on a rejoin."""


@dataclass(frozen=True, slots=True)
class Goodbye(MembershipMessage):
    """Announcement, to all topology neighbors or clients in the view, that the sender leaves.

    A crash sends none.
    """


class MembershipView(ABC):
    """View of one client: the clients that it believes to be up.

    The client calls `received_from` for every message that reaches it, answers included, and then passes it
    to `on_message` if it is a `MembershipMessage`. `on_change(peer, up)`, if set, is called when a peer has
    come up or gone down, as far as this client knows.
    """

    __slots__ = ("name", "on_change")

    def __init__(self, name: str) -> None:
        self.name = name
        self.on_change: Callable[[str, bool], None] | None = None

    @property
    @abstractmethod
    def peers(self) -> list[str]:
        """Peers believed to be up, sorted. A change makes a new list; lists that were read stay unchanged."""

    @abstractmethod
    def received_from(self, sender: str) -> None:
        """Handle a message from `sender` as a sign of life; called for every message, so it must be cheap."""

    @abstractmethod
    def on_message(self, message: object, sender: str) -> bool:
        """Handle a message about membership; return False for other messages, which the client handles."""

    @abstractmethod
    def suspect(self, peer: str) -> None:
        """Mark `peer` as suspect: it did not answer in time."""

    @abstractmethod
    def start(self, tell: Tell) -> None:
        """Start at the beginning of the run, as do the views of all clients that are up then."""

    @abstractmethod
    def join(self, tell: Tell) -> None:
        """Start, for the first time or again, without using earlier beliefs.

        Changes of the beliefs about neighbors are reported to `on_change`, as always.
        """

    @abstractmethod
    def leave(self, tell: Tell) -> None:
        """Leave gracefully."""

    @abstractmethod
    def crash(self) -> None:
        """End without a message; the code that crashes the actor calls this."""

    def _report(self, peer: str, up: bool) -> None:
        if self.on_change is not None:
            self.on_change(peer, up)


class NeighbourView(MembershipView):
    """Membership among fixed neighbors: the neighbors in the topology."""

    __slots__ = ("_missing", "_peers")

    def __init__(self, name: str, neighbours: Iterable[str], absent: Collection[str] = ()) -> None:
        """Start with all neighbors up, except `absent`, which are known to join later."""
        super().__init__(name)
        self._peers = sorted(set(neighbours))
        if name in self._peers:
            raise ValueError(f"{name} cannot be its own neighbor")
        self._missing = _NOBODY  # neighbors that are not among the peers
        if absent:
            self._believe_down(peer for peer in self._peers if peer in absent)

    def __repr__(self) -> str:
        kind, up = type(self).__name__, len(self._peers)
        return f"<{kind} of {self.name}, {up} of {len(self.neighbours)} neighbors up>"

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Neighbors in the topology, sorted."""
        return tuple(sorted([*self._peers, *self._missing]) if self._missing else self._peers)

    @property
    def peers(self) -> list[str]:
        return self._peers

    def start(self, tell: Tell) -> None:
        """Do nothing: the other clients already consider this client up."""

    def _believe_down(self, names: Iterable[str]) -> None:
        """Assume that all neighbors except these are up, and report the differences from before."""
        neighbours, before, self._missing = self.neighbours, self._missing, frozenset(names)
        self._peers = [peer for peer in neighbours if peer not in self._missing]
        for peer in neighbours:
            if (peer in before) != (peer in self._missing):
                self._report(peer, peer in before)

    def _add(self, peer: str) -> None:
        if peer not in self._missing:
            return
        self._missing -= {peer}
        self._peers = self._peers.copy()
        insort(self._peers, peer)
        self._report(peer, True)

    def _remove(self, peer: str) -> None:
        if peer not in self._peers:
            return
        self._missing |= {peer}
        self._peers = [other for other in self._peers if other != peer]
        self._report(peer, False)


class AnnouncedView(NeighbourView):
    """Membership by announcements (the scenario's "announce"); silence is the only sign of a crash.

    A client that comes up does not know which neighbors are up. It believes each neighbor to be up until that
    neighbor sends Goodbye or is suspected. Any message of a neighbor proves that it is back. A message that
    overtook its sender's Goodbye on a datagram link therefore brings the sender back until the next
    suspicion. It would be worse to ignore messages after a Goodbye: a peer that returned, and whose Hello was
    lost, would stay unknown for good.
    """

    __slots__ = ()

    def received_from(self, sender: str) -> None:
        if sender in self._missing:
            self._add(sender)

    def on_message(self, message: object, sender: str) -> bool:
        match message:
            case Hello():
                self._add(sender)
            case Goodbye():
                self._remove(sender)
            case _:
                return False
        return True

    def suspect(self, peer: str) -> None:
        self._remove(peer)

    def join(self, tell: Tell) -> None:
        self._believe_down(())
        self._tell_all(tell, Hello())

    def leave(self, tell: Tell) -> None:
        self._tell_all(tell, Goodbye())

    def crash(self) -> None:
        """Do nothing: a crash is not announced."""

    def _tell_all(self, tell: Tell, message: Hello | Goodbye) -> None:
        for peer in self.neighbours:  # also neighbors believed down: the belief may be wrong
            tell(peer, message)
