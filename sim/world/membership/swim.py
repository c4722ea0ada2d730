"""Clients detect dead peers by pings."""

from typing import Literal

from pydantic import model_validator

from actors.settings.base import SettingError, default
from actors.settings.quantities import Count, PositiveDuration, PositiveWeight
from protocols.membership.active import SwimView
from protocols.membership.swim import SwimSettings
from sim.kernel.random import RandomStream
from sim.world.membership.kinds import MembershipContext, MembershipKind, ViewOf


class Swim(MembershipKind):
    """Clients ping their peers, and tell each other which are dead (Das, Gupta, Motivala 2002)."""

    kind: Literal["swim"]
    period: PositiveDuration = default("1 s")
    """Protocol period: a client pings one peer in each."""
    timeout: PositiveDuration = default("300 ms")
    """Time after which other peers are asked to ping a peer that has not answered."""
    proxies: Count = 3
    """How many are asked."""
    suspicion: PositiveWeight = 5.0
    """Protocol periods in which a suspected peer can say that it is alive."""
    news_per_message: Count = 6
    """How many pieces of news about peers a message carries, at most."""
    reconnect: PositiveDuration = default("30 s")
    """Time between two pings of a dead peer, which may only have been cut off."""

    @model_validator(mode="after")
    def _timeout_in_period(self) -> "Swim":
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
        """The settings of the failure detector."""
        return SwimSettings(
            self.period,
            self.timeout,
            self.proxies,
            self.suspicion,
            self.news_per_message,
            reconnect_s=self.reconnect,
        )
