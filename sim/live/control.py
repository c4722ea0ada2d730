"""What the processes of a live run tell each other beside the actors' messages."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from actors.codec import Codec


@dataclass(frozen=True)
class AskTime:
    """A process asks what time it is at the coordinator. sent_s: by its own clock."""

    sent_s: float


@dataclass(frozen=True)
class TellTime:
    """The coordinator's time, for an `AskTime` of that `sent_s`."""

    sent_s: float
    now_s: float


@dataclass(frozen=True)
class ProcessReady:
    """A process has built its part, and is connected to all others. scenario: its digest there."""

    scenario: str


@dataclass(frozen=True)
class Begin:
    """The run begins at this time of the coordinator's clock."""

    at_s: float


@dataclass(frozen=True)
class Presence:
    """Actors of the process that tells this have come, or are gone."""

    names: tuple[str, ...]
    up: bool


@dataclass(frozen=True)
class AskPresence:
    """Who of the other process is there? It answers by `Presence`."""


@dataclass(frozen=True)
class TransferBegun:
    """A transfer has begun at this time of the run. number: of the process that tells this."""

    number: int
    at_s: float
    sender: str
    receiver: str
    bits: float


@dataclass(frozen=True)
class TransferCut:
    """A transfer has ended before its time."""

    number: int


@dataclass(frozen=True)
class Ended:
    """The results of a process (`sim.live.parts`), as JSON, and its tables as Arrow's stream format.

    is_last: whether this is all, and not only what there is up to now.
    """

    is_last: bool
    facts: bytes
    metrics: bytes
    events: bytes


@dataclass(frozen=True)
class Leave:
    """The coordinator has the results: the process may end."""


CONTROL = Codec(
    AskTime, TellTime, ProcessReady, Begin, Presence, AskPresence, TransferBegun, TransferCut, Ended, Leave
)

_KINDS = {"str": str, "bool": bool, "int": int, "bytes": bytes}


def require_sound(content: object) -> None:
    """Refuse, with ValueError, what was told with fields that are not what they are declared to be.

    Whoever tells it has proved who it is, and may lie all the same.
    """
    if type(content).__module__ != __name__:
        raise ValueError(f"{type(content).__name__} is nothing that processes tell")
    for field in fields(content):  # type: ignore[arg-type]
        value, declared = getattr(content, field.name), str(field.type)
        if declared == "float":
            sound = type(value) in (int, float) and math.isfinite(value)
        elif declared == "tuple[str, ...]":
            sound = type(value) is tuple and all(type(each) is str for each in value)
        else:
            sound = type(value) is _KINDS[declared]
        if not sound:
            raise ValueError(f"{type(content).__name__}.{field.name} is no {declared}")
