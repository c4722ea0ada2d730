"""Latency between the clients: drawn for each message, or decided by who talks to whom.

A kind is one file: its keys, and what it builds. A distribution is its own model; all others come down to
`NodeLatency`.
"""

from typing import TYPE_CHECKING, Annotated

from actors.settings.quantities import Duration, PositiveDuration
from actors.settings.tables import constant
from sim.plugins.point import PluginPoint
from sim.world.distributions import Distribution, NormalTime, distributions
from sim.world.latency.matrix import MatrixLatency
from sim.world.latency.measured import TraceLatency
from sim.world.latency.nodes import LatencyByNode, LatencyOfPairs
from sim.world.latency.own import OwnLatency
from sim.world.latency.positions import PositionLatency
from sim.world.participants import Participants

if TYPE_CHECKING:
    Latency = Distribution | LatencyByNode
else:
    _KINDS = (MatrixLatency, PositionLatency, TraceLatency)
    Latency = Annotated[
        distributions("Time", Duration, PositiveDuration, NormalTime, *_KINDS),
        PluginPoint(OwnLatency),
        constant(Duration),
    ]

LatencyModel = Distribution | LatencyOfPairs
"""What gives a message its latency."""


def latency_model(latency: Latency, key: str, participants: Participants) -> LatencyModel:
    """The model of a latency as stated; `key` is where it stands in the scenario. UserError."""
    return latency.build(key, participants) if isinstance(latency, LatencyByNode) else latency
