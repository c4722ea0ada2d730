"""An actor among peers: who it believes to be there, and how peers that lost each other meet again."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from actors.actor import Actor
from actors.message import PeerUnavailable
from actors.settings.base import Settings
from actors.transport import Transport
from protocols.framework.compute import Compute
from protocols.framework.vectors import Vector
from protocols.membership.view import MembershipMessage

_SEEK_AFTER_S = 1.0
_PICKS_DRAWN = 32
_SEEK_TIMES_MAX = 24  # the last one after half a year


class ProtocolSettings(Settings):
    """Settings of a method; its own keys stand beside `protocol.name` in a scenario file."""

    changing: ClassVar[tuple[str, ...]] = ()
    """Keys that can become others while a run goes on, as the method reads `self.settings` whenever it needs
    them."""
    alone: bool = False
    """No client knows any other, so that each trains by itself as it does in this method: its control."""
    unusual: tuple[str, ...] = ()
    """Keys outside this section whose values the method was not made for (`["training.momentum"]`), and are
    meant all the same; without, they are refused."""


@dataclass(frozen=True)
class Requirement:
    """What a method needs of the rest of a scenario, or it would not be what its paper describes.

    key: where the value stands, such as "model.initialisation". suits(value): whether it will do. problem:
    why others won't, and which are allowed; the rest of a sentence that begins with the protocol's name.
    """

    key: str
    suits: Callable[[Any], bool]
    problem: str


def common_start(*allowed: str) -> Requirement:
    """Of methods that average models, or backbones, which no server has handed out."""
    means_little = "averages layers of different clients, which means little if these start apart"
    must_be = " or ".join(f'"{value}"' for value in allowed)
    return Requirement(
        "model.initialisation", lambda value: value in allowed, f"{means_little}; must be {must_be}"
    )


def plain_sgd(method: str) -> tuple[Requirement, ...]:
    """Of methods whose formulas are those of SGD without momentum; `method` says in what, as a predicate."""
    return (
        Requirement("training.optimizer", lambda value: value == "sgd", f'{method}; must be "sgd"'),
        Requirement("training.momentum", lambda value: value == 0, f"{method}, without momentum; must be 0"),
    )


def two_way_links(settings: ProtocolSettings) -> tuple[Requirement, ...]:
    """Of methods in which both ends of a link hear of each other."""
    if settings.alone:
        return ()
    problem = "needs links that go both ways; must have directed = false"
    return (Requirement("clients.topology", lambda value: not getattr(value, "directed", False), problem),)


@dataclass(frozen=True)
class Links:
    """What a directed or weighted topology says of a client's links.

    receivers, senders: where a link may go one way only, whom the client may send to, and who may send to it;
    else None. weights: what it gives to the model of each sender; None where the topology states no weights.
    """

    receivers: frozenset[str] | None = None
    senders: frozenset[str] | None = None
    weights: Mapping[str, float] | None = None


class Membership(Protocol):
    """Who this client believes to be there. `on_change(peer, up)` is called when that belief changes."""

    on_change: Callable[[str, bool], None] | None

    @property
    def peers(self) -> list[str]:
        """Names of the peers believed to be up, sorted."""

    def suspect(self, peer: str) -> None:
        """`peer` did not answer in time."""

    def heard_from(self, sender: str) -> None:
        """A message came from `sender`."""

    def on_message(self, message: object, sender: str) -> bool:
        """Whether a `MembershipMessage` was for it, and has been dealt with."""


@dataclass(frozen=True)
class AreYouThere:
    """To a peer that has been silent. No answer: the peer now knows of the sender, and will be heard from.

    That it is there is no reason to wait for it again: it may be slow. It will speak when it is ready.
    """


@dataclass(frozen=True)
class ModelWanted:
    """From a newcomer: asks for the receiver's model; `repeated`, because no answer has come.

    `attempt`: how often it was asked for again, from 1 on.
    """

    repeated: bool = False
    attempt: int = 0


@dataclass(frozen=True)
class CurrentModel:
    """The sender's model, for a newcomer; None from one that has yet to start itself.

    `repeated` and `attempt` are those of the `ModelWanted` that it answers.
    """

    params: Vector | None
    repeated: bool = False
    attempt: int = 0


@dataclass(frozen=True)
class NewcomersStart:
    """What a client that comes later starts from: the mean of the models of `peers` random peers.

    With 0 it starts from its own initial model. `patience`: seconds that it waits for their answers.
    """

    peers: int = 0
    patience: float = 10.0


@dataclass(frozen=True)
class Surroundings:
    """Everything that a learner or a server is given by whoever runs it.

    `neighbours` are those that it has a link with in the topology, and `links` says more of them; `rng` is
    its own random stream; `shared_seed` is a number that all clients were given before the start;
    `observe(name, value)` reports to the observer and costs nothing. `alone`: there are no peers and no
    servers, and never will be. `compute`: the device and data of a server that has some; a learner is handed
    its own beside these.
    """

    transport: Transport
    membership: Membership
    neighbours: tuple[str, ...]
    rng: np.random.Generator
    shared_seed: int
    observe: Callable[[str, Any], None]
    newcomers: NewcomersStart = NewcomersStart()
    alone: bool = False
    links: Links = Links()
    compute: Compute | None = None


class Member(Actor):
    """An actor that knows its peers and has a model: the common base of learners and servers."""

    machinery: ClassVar[bool] = True
    params: Vector
    rng: np.random.Generator
    """Its own random stream, by the scenario's seed: the only source of chance."""
    observe: Callable[[str, Any], None]
    """`observe(name, value)` records a number or a Scalar under a name; free. What is kept is the mean since
    the evaluation before; TypeError for what is no number, or for a name of the observer's."""
    newcomer = False
    """Whether it came later than the others, and has no model of its own yet."""
    late = False
    """Whether it came, or came back, later than the others."""

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        super().__init__(name, surroundings.transport)
        self.surroundings = surroundings
        self.membership = surroundings.membership
        self.rng = surroundings.rng
        self.observe = surroundings.observe
        self._receivers = surroundings.links.receivers
        self._uniforms: list[float] = []  # random numbers in [0, 1) for `pick_peer`
        # Who asks suspected peers, now and then, whether they are there.
        self._sought: dict[str, asyncio.Task[None]] = {}
        self.membership.on_change = self.peer_changed

    @property
    def peers(self) -> list[str]:
        """Names of the peers that this client believes to be up, sorted; a belief, not the truth.

        In a directed topology these are the ones that it may send to.
        """
        peers, receivers = self.membership.peers, self._receivers
        return peers if receivers is None else [peer for peer in peers if peer in receivers]

    @property
    def senders(self) -> list[str]:
        """Names of those that may send to this client and are believed to be up: `peers`, if not directed."""
        peers, senders = self.membership.peers, self.surroundings.links.senders
        return peers if senders is None else [peer for peer in peers if peer in senders]

    @property
    def mixing_weights(self) -> Mapping[str, float] | None:
        """What a weighted topology has this client give to the model of each of its senders, by name.

        What is left of 1 is for its own model. None where the topology states no weights.
        """
        return self.surroundings.links.weights

    def is_peer(self, name: str) -> bool:
        """Whether `name` is among `peers`."""
        peers = self.peers
        place = bisect_left(peers, name)
        return place < len(peers) and peers[place] == name

    def pick_peer(self) -> str:
        """One peer at random; PeerUnavailable when there is none."""
        return self._any_of(self.peers)

    def _any_of(self, peers: list[str]) -> str:
        if not peers:
            raise PeerUnavailable("every peer", f"{self.name} knows of none that is up")
        if not self._uniforms:
            self._uniforms = self.rng.random(_PICKS_DRAWN).tolist()  # one by one they cost ten times as much
        return peers[int(self._uniforms.pop() * len(peers))]

    def wait_at_first(self, patience: float) -> None:
        """Take nothing for overdue within a quarter of `patience` (s), before anything is known of peers.

        A first model may be on its way for long, and to repeat it would only make it later.
        """
        self.round_trips.initial_s = patience / 4

    def vector(self, numbers: Any) -> Any:
        """A handle on known numbers: a Vector of an array [n], a Scalar of a number. ValueError else."""
        return self.params.like(numbers)

    def apply(self, function: Callable[..., Any], *arguments: Any, **static: Any) -> Any:
        """What a function of the method's own makes of vectors and scalars; deferred, at no cost.

        As `Learner.apply`, which may have one.
        """
        return self.params.applied(function, arguments, static)

    def suspect(self, peer: str) -> None:
        """`peer` kept silent too long: count it out until something is heard from it.

        It may have been cut off, and count this client out as well. So that they find each other again, it is
        told from time to time that this client is there, each time after twice as long.
        """
        believed = peer in self.peers
        self.membership.suspect(peer)
        if believed and peer not in self.peers:
            if peer in self._sought:
                self._sought[peer].cancel()  # what it has doubled since an earlier silence does not count
            self._sought[peer] = self.spawn(self._seek(peer))

    async def _seek(self, peer: str) -> None:
        wait_s = _SEEK_AFTER_S
        for _ in range(_SEEK_TIMES_MAX):
            await self.sleep(wait_s)
            if peer in self.peers:
                return
            self.tell(peer, AreYouThere())
            wait_s *= 2

    def heard(self, message: object, sender: str) -> bool:
        """A message arrived, of whatever kind; True when it was about membership and needs no handler."""
        self.membership.heard_from(sender)
        if type(message) is ModelWanted:
            model = None if self.newcomer else self.params
            self.tell(sender, CurrentModel(model, message.repeated, message.attempt))
            return True
        if isinstance(message, MembershipMessage):
            return self.membership.on_message(message, sender)
        return type(message) is AreYouThere

    def peer_changed(self, peer: str, up: bool) -> None:
        """`peer` was added to `peers`, or taken out of them: whoever is gone is not waited for."""
        if not up:
            self.give_up_on(peer)
