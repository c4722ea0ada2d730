"""The clients and who knows whom."""

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
    """How long a newcomer waits for the answer, before it asks another peer; the third time is the last. A
    peer that is a newcomer itself says so, and another one is asked at once."""


class MeanStart(Settings):
    """Newcomers start from the mean of the models of some random peers."""

    kind: Literal["mean"]
    peers: Count = 5
    """How many are asked."""
    patience: PositiveDuration = default("10 s")
    """How long a newcomer waits for answers; if there is none at all, it asks others, up to three times.
    Peers that are newcomers themselves say so, and where all do, others are asked at once."""


Newcomers = Annotated[
    Annotated[FreshStart | PeerStart | MeanStart, Field(discriminator="kind")],
    kind_alone("fresh", "peer", "mean"),
]


class Clients(Settings):
    """The clients and who knows whom."""

    count: Annotated[PositiveInt, Within(1, 1_000_000, "more would not fit in memory")]
    """Number of clients, those that join later included."""
    topology: Annotated[Topology, PluginPoint(OwnTopology)] = default("complete")
    """Who may talk to whom: a kind, or a table with its settings."""
    newcomers: Newcomers = default("fresh")
    """What a client that joins, or comes back without its state, starts from."""
