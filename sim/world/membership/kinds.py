"""Kinds of membership. A kind is one class: its keys, and the views of the clients."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings, default
from actors.settings.quantities import Count, PositiveDuration, PositiveWeight
from actors.settings.tables import kind_alone
from protocols.membership.active import SampledView, SamplingSettings, SwimView
from protocols.membership.swim import SwimSettings
from protocols.membership.view import AnnouncedView, MembershipView
from sim.kernel.random import RandomStream
from sim.world.membership.bootstrap_service import BootstrapService
from sim.world.membership.directory import Directory, DirectoryView

ViewOf = Callable[[str, Sequence[str]], MembershipView]
"""(name, neighbors in the topology) -> the actor's view."""


@dataclass(frozen=True)
class MembershipContext:
    """Data for the views. up, absent: actors that are up at the start, and actors that join later."""

    loop: asyncio.AbstractEventLoop
    seed: int
    up: Sequence[str]
    absent: Sequence[str]


class MembershipKind(Settings):
    """Membership: the way in which clients learn which peers are up."""

    @abstractmethod
    def views(self, context: MembershipContext) -> ViewOf:
        """Return the function that creates each actor's view, and that holds the state that views share."""


class Announce(MembershipKind):
    """Clients announce joins and departures to their neighbors. A crash is detected by timeouts only."""

    kind: Literal["announce"]

    def views(self, context: MembershipContext) -> ViewOf:
        absent = frozenset(context.absent)
        return lambda name, neighbours: AnnouncedView(name, neighbours, absent)


class AllKnowing(MembershipKind):
    """The simulator informs all clients immediately which peers are up."""

    kind: Literal["all-knowing"]

    def views(self, context: MembershipContext) -> ViewOf:
        directory = Directory(context.up)
        return lambda name, neighbours: DirectoryView(name, neighbours, directory)


class Swim(MembershipKind):
    """Clients ping their peers, and inform each other of dead peers (Das, Gupta, Motivala 2002)."""

    kind: Literal["swim"]
    period: PositiveDuration = default("1 s")
    """Protocol period. A client pings one peer in each period."""
    timeout: PositiveDuration = default("300 ms")
    """Time after which a client asks other peers to ping a peer that has not answered."""
    proxies: Count = 3
    """Number of peers that a client asks."""
    suspicion: PositiveWeight = 5.0
    """Protocol periods in which a suspected peer can announce that it is alive."""
    news_per_message: Count = 6
    """Largest number of updates about peers in a message."""
    reconnect: PositiveDuration = default("30 s")
    """Time between two pings of a peer declared dead, which might be up but cut off by the network."""

    @model_validator(mode="after")
    def _timeout_in_period(self) -> Swim:
        if self.timeout >= self.period:
            raise SettingError("timeout", self.timeout, f"must be less than the period ({self.period:g} s)")
        return self

    def views(self, context: MembershipContext) -> ViewOf:
        return lambda name, neighbours: SwimView(
            name,
            neighbours,
            context.absent,
            context.loop,
            RandomStream(context.seed, "swim", name),
            self.detection(),
        )

    def detection(self) -> SwimSettings:
        """Return the settings of the failure detector."""
        return SwimSettings(
            self.period,
            self.timeout,
            self.proxies,
            self.suspicion,
            self.news_per_message,
            reconnect_s=self.reconnect,
        )


class NoDetection(Settings):
    """A peer that does not answer leaves the view. A client that departs informs the peers in its view."""

    kind: Literal["none"]


_Detection = Annotated[Swim | NoDetection, Field(discriminator="kind")]


class Bootstrap(MembershipKind):
    """Clients know some contacts, and keep a changing sample of all others (Cyclon; Voulgaris et al. 2005).

    The topology must be complete.
    """

    kind: Literal["bootstrap"]
    contacts: Count = 3
    """Number of random contacts that are up, which a bootstrap service names to a client that joins or has an
    empty view."""
    view: Count = 20
    """Largest number of peers in a view."""
    shuffle: Count = 8
    """Entries of a view that two peers exchange at once."""
    shuffle_every: PositiveDuration = default("5 s")
    """Time between two exchanges that a client starts."""
    detection: Annotated[_Detection, kind_alone(_Detection)] = default("swim")
    """Detection of dead peers: by pings (swim), or only when they do not answer (none)."""

    @model_validator(mode="after")
    def _shuffle_in_view(self) -> Bootstrap:
        if self.shuffle > self.view:
            raise SettingError("shuffle", self.shuffle, f"must be at most view = {self.view}")
        return self

    def views(self, context: MembershipContext) -> ViewOf:
        seed = context.seed
        service = BootstrapService(seed, [*context.up, *context.absent], context.up)
        detection = self.detection.detection() if isinstance(self.detection, Swim) else None
        settings = SamplingSettings(self.contacts, self.view, self.shuffle, self.shuffle_every, detection)
        return lambda name, neighbours: SampledView(
            name, service, context.loop, lambda purpose: RandomStream(seed, purpose, name), settings
        )


_Kinds = Annotated[Announce | AllKnowing | Swim | Bootstrap, Field(discriminator="kind")]
Membership = Annotated[_Kinds, kind_alone(_Kinds)]
"""Membership: the way in which clients learn which peers are up."""
