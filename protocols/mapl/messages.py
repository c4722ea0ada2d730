"""What clients of MAPL tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.framework.vectors import Vector


@dataclass(frozen=True)
class Knowledge:
    """What a client shares: never its data, nor (without MAPL+) its backbone.

    prototypes [K * d_p]; head [K * (d_z + 1)], None before the end of the warm-up; backbone: MAPL+ only. They
    are the sender's after its pass number `round` over its `samples`, at `time` (s).
    """

    prototypes: Vector
    head: Vector | None
    backbone: Vector | None
    samples: int
    round: int
    time: float


@dataclass(frozen=True)
class RoundKnowledge(Knowledge):
    """What a neighbour waits for in the synchronous form.

    `wanted`: whether the sender waits for the receiver's; else it only answers, and wants no answer to that.
    `repeated`, `attempt` and `delayed` are those of `protocols.shared.rounds.RoundModel`.
    """

    wanted: bool = True
    repeated: bool = False
    attempt: int = 0
    delayed: float = 0.0


@dataclass(frozen=True)
class RoundKnowledgeWanted:
    """The sender waits in `round` for the receiver's knowledge; `attempt`: how often, from 1 on."""

    round: int
    attempt: int = 0


@dataclass(frozen=True)
class KnowledgeOnDemand(Knowledge):
    """The answer to `KnowledgeWanted`."""


@dataclass(frozen=True)
class KnowledgeWanted:
    """Asks for the receiver's `Knowledge`."""


@dataclass(frozen=True)
class Parted:
    """The sender gives the receiver no weight, and will not send it what it learns."""


def is_next(knowledge: RoundKnowledge) -> bool:
    """Whether its sender tells it in its turn. One of the next round then shows that this one's is lost."""
    return knowledge.wanted and not knowledge.repeated
