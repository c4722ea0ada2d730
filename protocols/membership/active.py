"""Memberships that detect changes themselves: SWIM among fixed neighbors, and peer sampling.

Both run inside a client and use the client's network: the client is the sender of all their messages.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from protocols.membership.cyclon import Cyclon
from protocols.membership.swim import ALIVE, DEAD, FailureDetector, SwimSettings
from protocols.membership.view import Goodbye, MembershipView, NeighbourView, RandomSource, Tell


class SwimView(NeighbourView):
    """Neighbors of the topology, monitored by SWIM (the scenario's "swim").

    A suspected peer remains a peer until it is declared dead.
    """

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        absent: Collection[str],
        loop: asyncio.AbstractEventLoop,
        draws: RandomSource,
        settings: SwimSettings,
    ) -> None:
        super().__init__(name, neighbours, absent)
        self._lived = False
        self._detector = FailureDetector(name, loop, draws, settings, self._changed)
        for peer in self.neighbours:
            # An absent peer joins with incarnation 0, which is higher than this.
            self._detector.watch(peer, *((DEAD, -1) if peer in self._missing else (ALIVE, 0)))

    def received_from(self, sender: str) -> None:
        self._detector.received_from(sender)

    def on_message(self, message: object, sender: str) -> bool:
        return self._detector.receive(message, sender)

    def suspect(self, peer: str) -> None:
        self._detector.suspect(peer)

    def start(self, tell: Tell) -> None:
        self._lived = True
        self._detector.start(tell)

    def join(self, tell: Tell) -> None:
        if self._lived:
            self._detector.come_back(tell)
        else:
            self._lived = True
            self._detector.introduce(tell)

    def leave(self, tell: Tell) -> None:
        self._detector.leave(tell)

    def crash(self) -> None:
        self._detector.stop()

    def _changed(self, peer: str, up: bool) -> None:
        if up:
            self._add(peer)
        else:
            self._remove(peer)


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """Settings of a sampled view.

    view, shuffle: number of entries in a view, and in a message; detection: None for Cyclon alone; contacts:
    number of clients requested from the bootstrap service; banned_s: time for which a client that was
    declared dead is kept out of the view, while other clients still pass its name on.
    """

    contacts: int = 3
    view: int = 20
    shuffle: int = 8
    shuffle_every_s: float = 5.0
    detection: SwimSettings | None = None
    banned_s: float = 60.0


class ContactService(Protocol):
    """Service that returns names of clients that are up."""

    def record(self, name: str, *, up: bool) -> None:
        """Record that a client has joined or left."""

    def contacts(self, name: str, count: int) -> list[str]:
        """Return the names of up to `count` clients that are up now, for the client `name`."""


class SampledView(MembershipView):
    """Random sample of all clients that are up (the scenario's "bootstrap"), from a few contacts by Cyclon.

    `peers` is the view, which changes with every shuffle. `on_change` is called for deaths, departures and
    returns only, not for peers that leave the view in exchange for others. A client that leaves notifies the
    clients in its own view (with SWIM some of them, which pass the news on): it cannot know which other views
    contain it.
    """

    def __init__(
        self,
        name: str,
        service: ContactService,
        loop: asyncio.AbstractEventLoop,
        draws: Callable[[str], RandomSource],
        settings: SamplingSettings,
    ) -> None:
        super().__init__(name)
        self._loop = loop
        self._service = service
        self._banned_s = settings.banned_s
        self._banned_until_s: dict[str, float] = {}
        self._gone: set[str] = set()  # reported as gone, and not yet as back
        self._peers: list[str] | None = None  # None after a change of the view
        self._detector = (
            None
            if settings.detection is None
            else FailureDetector(name, loop, draws("swim"), settings.detection, self._declared)
        )
        self._cyclon = Cyclon(
            name,
            loop,
            draws("cyclon"),
            partial(service.contacts, name, settings.contacts),
            view_size=settings.view,
            shuffle_size=settings.shuffle,
            every_s=settings.shuffle_every_s,
            changed=self._view_changed,
            refused=self._is_banned,
        )
        self._view_changed()

    def __repr__(self) -> str:
        return f"<SampledView of {self.name}, {len(self._cyclon.view)} in view>"

    @property
    def peers(self) -> list[str]:
        if self._peers is None:
            self._peers = sorted(self._cyclon.view)
        return self._peers

    def received_from(self, sender: str) -> None:
        self._banned_until_s.pop(sender, None)
        if sender in self._gone:
            self._report_return(sender)
        if self._detector is not None:
            self._detector.received_from(sender)

    def on_message(self, message: object, sender: str) -> bool:
        if isinstance(message, Goodbye):
            self._declared(sender, False)
            return True
        return self._cyclon.receive(message, sender) or (
            self._detector is not None and self._detector.receive(message, sender)
        )

    def suspect(self, peer: str) -> None:
        if self._detector is not None:
            self._detector.suspect(peer)
        else:
            self._declared(peer, False)

    def start(self, tell: Tell) -> None:
        self._cyclon.start(tell, at_once=False)
        if self._detector is not None:
            self._detector.start(tell)

    def join(self, tell: Tell) -> None:
        self._service.record(self.name, up=True)
        self._banned_until_s.clear()
        self._cyclon.restart(tell)
        if self._detector is not None:
            self._detector.come_back(tell)

    def leave(self, tell: Tell) -> None:
        if self._detector is not None:
            self._detector.leave(tell)
        else:
            for peer in self.peers:
                tell(peer, Goodbye())
        self._service.record(self.name, up=False)
        self._cyclon.stop()

    def crash(self) -> None:
        self._service.record(self.name, up=False)
        if self._detector is not None:
            self._detector.stop()
        self._cyclon.stop()

    def _declared(self, peer: str, up: bool) -> None:
        if up:
            return  # it returns to the view by its own shuffle
        now_s = self._loop.time()
        current = {name: until_s for name, until_s in self._banned_until_s.items() if until_s > now_s}
        self._banned_until_s = current | {peer: now_s + self._banned_s}
        self._cyclon.remove(peer)
        self._gone.add(peer)
        self._report(peer, False)

    def _report_return(self, peer: str) -> None:
        self._gone.discard(peer)
        self._report(peer, True)

    def _is_banned(self, name: str) -> bool:
        until_s = self._banned_until_s.get(name)
        if until_s is not None and until_s <= self._loop.time():
            del self._banned_until_s[name]
            return False
        return until_s is not None

    def _view_changed(self) -> None:
        """Watch exactly the clients in the view, and report those that are back in it after their ban."""
        self._peers = None
        if self._detector is not None:
            self._detector.watch_only(self._cyclon.view)
        for peer in sorted(self._gone & self._cyclon.view.keys()):
            self._report_return(peer)
