"""How clients learn who is there."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from protocols.settings import Count, PositiveDuration, PositiveWeight, SettingError, Settings, default
from sim.settings.shared import kind_alone


class Announce(Settings):
    """Clients say hello and goodbye to their neighbours; a timeout is the only sign of a crash."""

    kind: Literal["announce"]


class AllKnowing(Settings):
    """The simulator tells everybody at once who is up."""

    kind: Literal["all-knowing"]


class Swim(Settings):
    """Clients ping their peers, and pass on whom they found dead (Das, Gupta, Motivala 2002)."""

    kind: Literal["swim"]
    period: PositiveDuration = default("1 s")
    """Protocol period: a client pings one peer in each."""
    timeout: PositiveDuration = default("300 ms")
    """Time after which others are asked to ping a peer that has not answered."""
    proxies: Count = 3
    """How many are asked."""
    suspicion: PositiveWeight = 5.0
    """Protocol periods in which a suspected peer can refute that it is dead."""
    news_per_message: Count = 6
    """Pieces of news about peers that ride on a message, at most."""
    reconnect: PositiveDuration = default("30 s")
    """Time between two pings of a dead peer, to find out that it was only cut off."""

    @model_validator(mode="after")
    def _timeout_in_period(self) -> "Swim":
        if self.timeout >= self.period:
            raise SettingError("timeout", self.timeout, f"must be less than the period ({self.period:g} s)")
        return self


class NoDetection(Settings):
    """Whoever does not answer is out of the view, and whoever leaves tells those in its own."""

    kind: Literal["none"]


class Bootstrap(Settings):
    """Clients know some contacts, and keep a changing sample of all others (Cyclon; Voulgaris et al. 2005).

    It takes the place of a topology, which must be complete.
    """

    kind: Literal["bootstrap"]
    contacts: Count = 3
    """Clients that a bootstrap service names to each one when it comes, or when its view has run empty:
    random ones of those that are up then."""
    view: Count = 20
    """Peers that a client knows, at most."""
    shuffle: Count = 8
    """Entries of a view that are exchanged with a peer at once."""
    shuffle_every: PositiveDuration = default("5 s")
    """Time between two exchanges that a client begins."""
    detection: Annotated[
        Annotated[Swim | NoDetection, Field(discriminator="kind")], kind_alone("swim", "none")
    ] = default("swim")
    """How the dead are found: by pings, or only when they don't answer."""

    @model_validator(mode="after")
    def _shuffle_in_view(self) -> "Bootstrap":
        if self.shuffle > self.view:
            raise SettingError("shuffle", self.shuffle, f"must be at most view = {self.view}")
        return self


Membership = Annotated[
    Annotated[Announce | AllKnowing | Swim | Bootstrap, Field(discriminator="kind")],
    kind_alone("announce", "all-knowing", "swim", "bootstrap"),
]
