"""Membership: whom a client believes to be up, and how it learns of changes.

Here is what all kinds share, and the one that sends a word when it comes and when it goes.
"""

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

_NOBODY: frozenset[str] = frozenset()
Tell = Callable[[str, object], object]
"""An actor's verb: `tell(peer, message)` sends the message and does not wait."""


class Chance(Protocol):
    """Where random numbers come from."""

    def uniform(self) -> float:
        """A number in [0, 1)."""


class MembershipMessage:
    """Base class of the messages by which clients learn of each other; they are counted apart.

    No others are given to a view.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Hello(MembershipMessage):
    """I am up: sent to all topology neighbours on a join and on a rejoin."""


@dataclass(frozen=True, slots=True)
class Goodbye(MembershipMessage):
    """I am leaving: sent to all topology neighbours, or the view, on a graceful leave, not on a crash."""


class MembershipView(ABC):
    """One client's view of who is there.

    The client calls `heard_from` for every message that reaches it, answers included, and then gives it to
    `on_message` if it is a `MembershipMessage`. `on_change(peer, up)`, where set, is called when a peer has
    come up or gone down, as far as this client knows.
    """

    __slots__ = ("name", "on_change")

    def __init__(self, name: str) -> None:
        self.name = name
        self.on_change: Callable[[str, bool], None] | None = None

    @property
    @abstractmethod
    def peers(self) -> list[str]:
        """The peers believed to be up, sorted. A change makes a new list, so one that was read stays."""

    @abstractmethod
    def heard_from(self, sender: str) -> None:
        """A message of whatever kind came from `sender`. Cheap: it is called for every message."""

    @abstractmethod
    def on_message(self, message: object, sender: str) -> bool:
        """Take in a message about membership; False if it is something else, for the client to handle."""

    @abstractmethod
    def suspect(self, peer: str) -> None:
        """`peer` did not answer in time."""

    @abstractmethod
    def start(self, tell: Tell) -> None:
        """This client is there from the start of the run, like all that are not known to be absent."""

    @abstractmethod
    def join(self, tell: Tell) -> None:
        """This client comes up, for the first time or again; whatever it believed before is out of date.

        What it now believes of its neighbours otherwise than before is reported, as any other change is.
        """

    @abstractmethod
    def leave(self, tell: Tell) -> None:
        """This client leaves gracefully."""

    @abstractmethod
    def crash(self) -> None:
        """This client is gone without a word (its actor can't say so: whoever crashes it calls this)."""

    def _report(self, peer: str, up: bool) -> None:
        if self.on_change is not None:
            self.on_change(peer, up)


class NeighbourView(MembershipView):
    """A membership among fixed neighbours: those of the topology."""

    __slots__ = ("_missing", "_peers")

    def __init__(self, name: str, neighbours: Iterable[str], absent: Collection[str] = ()) -> None:
        """`absent`: those that are known not to be there yet; all other neighbours are believed to be up."""
        super().__init__(name)
        self._peers = sorted(set(neighbours))
        if name in self._peers:
            raise ValueError(f"{name} cannot be its own neighbour")
        self._missing = _NOBODY  # the neighbours that are not among the peers
        if absent:
            self._believe_down(peer for peer in self._peers if peer in absent)

    def __repr__(self) -> str:
        kind, up = type(self).__name__, len(self._peers)
        return f"<{kind} of {self.name}, {up} of {len(self.neighbours)} neighbours up>"

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Those in the topology, sorted."""
        return tuple(sorted([*self._peers, *self._missing]) if self._missing else self._peers)

    @property
    def peers(self) -> list[str]:
        return self._peers

    def start(self, tell: Tell) -> None:
        """Nothing to do: the others know."""

    def _believe_down(self, names: Iterable[str]) -> None:
        """Start afresh: all neighbours are up but these. What differs from before is reported."""
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
    """Peers tell one another (the scenario's "announce"), and silence is the only sign of a crash.

    A client that comes up knows nothing of who is: it believes all its neighbours to be up until they say
    Goodbye or are suspected. Any message of a neighbour is proof that it is back. So a message that overtook
    its sender's Goodbye on a datagram link brings the sender back until the next suspicion; to ignore it
    would be worse, since a peer whose Hello was lost would stay unknown for good.
    """

    __slots__ = ()

    def heard_from(self, sender: str) -> None:
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
        """Nobody hears of it."""

    def _tell_all(self, tell: Tell, message: Hello | Goodbye) -> None:
        for peer in self.neighbours:  # also those believed down: the belief may be wrong
            tell(peer, message)
