"""Kinds of latency: drawn for each message, or a function of sender and receiver.

A kind is one file: its keys, and `build`. A distribution is itself a latency model. All other kinds build a
`PairLatency`.
"""

from typing import TYPE_CHECKING, Annotated

from actors.settings.quantities import Duration, PositiveDuration
from actors.settings.tables import allow_plain_quantity
from sim.plugins.point import PluginPoint
from sim.world.distributions import Distribution, NormalTime, distributions
from sim.world.latency.matrix import MatrixLatency
from sim.world.latency.measured import TraceLatency
from sim.world.latency.nodes import LatencyByNode, LatencyModel
from sim.world.latency.own import OwnLatency
from sim.world.latency.positions import PositionLatency
from sim.world.latency.table import TableLatency
from sim.world.participants import Participants

if TYPE_CHECKING:
    Latency = Distribution | LatencyByNode
else:
    _KINDS = (TableLatency, MatrixLatency, PositionLatency, TraceLatency)
    Latency = Annotated[
        distributions("Time", Duration, PositiveDuration, NormalTime, *_KINDS),
        PluginPoint(OwnLatency),
        allow_plain_quantity(Duration),
    ]


def latency_model(latency: Latency, key: str, participants: Participants) -> LatencyModel:
    """Return the model of the stated latency. key: its key in the scenario, for errors. Raises UserError."""
    return latency.build(key, participants) if isinstance(latency, LatencyByNode) else latency
