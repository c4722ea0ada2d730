"""What the processes of a live run tell each other beside the actors' messages."""

from __future__ import annotations

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from actors.codec import Codec

_STRICT = ConfigDict(strict=True, allow_inf_nan=False)  # what comes in is made of checked fields, or refused


@dataclass(frozen=True, config=_STRICT)
class AskTime:
    """A process asks what time it is at the coordinator. sent_s: by its own clock."""

    sent_s: float


@dataclass(frozen=True, config=_STRICT)
class TellTime:
    """The coordinator's time, for an `AskTime` of that `sent_s`."""

    sent_s: float
    now_s: float


@dataclass(frozen=True, config=_STRICT)
class ProcessReady:
    """A process has built its part, and is connected to all others. scenario: its digest there."""

    scenario: str


@dataclass(frozen=True, config=_STRICT)
class Begin:
    """The run begins at this time of the coordinator's clock."""

    at_s: float


@dataclass(frozen=True, config=_STRICT)
class Presence:
    """Actors of the process that tells this have come, or are gone."""

    names: tuple[str, ...]
    up: bool


@dataclass(frozen=True, config=_STRICT)
class AskPresence:
    """Who of the other process is there? It answers by `Presence`."""


@dataclass(frozen=True, config=_STRICT)
class TransferBegun:
    """A transfer has begun at this time of the run. number: of the process that tells this."""

    number: int
    at_s: float
    sender: str
    receiver: str
    bits: float


@dataclass(frozen=True, config=_STRICT)
class TransferCut:
    """A transfer has ended before its time."""

    number: int


@dataclass(frozen=True, config=_STRICT)
class Told:
    """Records of a process on another machine (`sim.live.logs`), for the coordinator to write."""

    records: bytes


@dataclass(frozen=True, config=_STRICT)
class Stop:
    """The run ends now, and not at its end: tell what there is."""


@dataclass(frozen=True, config=_STRICT)
class Ended:
    """A process has told all that it found."""


@dataclass(frozen=True, config=_STRICT)
class Leave:
    """The coordinator has the results: the process may end."""


CONTROL = Codec(
    AskTime,
    TellTime,
    ProcessReady,
    Begin,
    Presence,
    AskPresence,
    TransferBegun,
    TransferCut,
    Told,
    Stop,
    Ended,
    Leave,
)


def decoded(data: bytes) -> object:
    """What a process tells. ValueError for anything else: who has proved who it is may lie all the same."""
    content = CONTROL.decode(data)
    if type(content).__module__ != __name__:
        raise ValueError(f"{type(content).__name__} is nothing that processes tell")
    return content
