"""The clients and their topology."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from actors.settings.base import Settings, default
from actors.settings.quantities import Count, PositiveDuration, Within
from actors.settings.tables import kind_alone
from sim.plugins.point import PluginPoint
from sim.world.topology.kinds import Topology
from sim.world.topology.own import OwnTopology


class FreshStart(Settings):
    """Newcomers start from the initial model."""

    kind: Literal["fresh"]


class PeerStart(Settings):
    """Newcomers start from the model of a random peer."""

    kind: Literal["peer"]
    patience: PositiveDuration = default("10 s")
    """Time that a newcomer waits for the answer before it draws a peer again, at most three times in all.
    A peer that is itself a newcomer replies without a model; the newcomer then asks another peer immediately,
    which does not count."""


class MeanStart(Settings):
    """Newcomers start from the mean of the models of some random peers."""

    kind: Literal["mean"]
    peers: Count = 5
    """Number of peers that a newcomer asks."""
    patience: PositiveDuration = default("10 s")
    """Time that a newcomer waits for answers; if there is none, it draws the peers again, up to three
    draws in all. Peers that are themselves newcomers reply without a model; if all do, the newcomer asks
    others immediately, which does not count."""


_Newcomers = Annotated[FreshStart | PeerStart | MeanStart, Field(discriminator="kind")]
Newcomers = Annotated[_Newcomers, kind_alone(_Newcomers)]


class Clients(Settings):
    """The clients and their topology."""

    count: Annotated[PositiveInt, Within(1, 1_000_000, "more would not fit in memory")]
    """Number of clients, including those that join later."""
    topology: Annotated[Topology, PluginPoint(OwnTopology)] = default("complete")
    """Pairs of clients that may exchange messages: a kind of topology, or a table with its settings."""
    newcomers: Newcomers = default("fresh")
    """Initial model of a client that joins, or rejoins without its state."""
