"""Messages between clients of MAPL."""

from dataclasses import dataclass

from protocols.framework.vectors import Vector


@dataclass(frozen=True)
class Knowledge:
    """Parameters that a client shares: never its data, nor (without MAPL+) its backbone.

    prototypes [K * d_p]; head [K * (d_z + 1)], None before the end of the warm-up; backbone: MAPL+ only.
    The sender had these parameters at `time` (s), after its local training number `round` (from 1). samples:
    the number of the sender's samples.
    """

    prototypes: Vector
    head: Vector | None
    backbone: Vector | None
    samples: int
    round: int
    time: float


@dataclass(frozen=True)
class RoundKnowledge(Knowledge):
    """Announcement of a round by the sender, for which neighbors wait in the synchronous form."""


@dataclass(frozen=True)
class KnowledgeOnDemand(Knowledge):
    """Answer to `KnowledgeWanted`."""


@dataclass(frozen=True)
class KnowledgeWanted:
    """Request for the receiver's `Knowledge`."""


@dataclass(frozen=True)
class Parted:
    """Notice that the sender gives the receiver no weight, and will not send it further knowledge."""
