"""Control messages between the processes of a live run."""

from __future__ import annotations

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from actors.codec import Codec

_STRICT = ConfigDict(strict=True, allow_inf_nan=False)  # reject messages with invalid fields


@dataclass(frozen=True, config=_STRICT)
class TimeRequest:
    """Request for the coordinator's time. sent_s: the time of the sender's clock."""

    sent_s: float


@dataclass(frozen=True, config=_STRICT)
class TimeReply:
    """Coordinator's time, in reply to the `TimeRequest` with this `sent_s`."""

    sent_s: float
    now_s: float


@dataclass(frozen=True, config=_STRICT)
class ProcessReady:
    """Notice that a process is built and connected to all others. scenario: the digest in that process."""

    scenario: str


@dataclass(frozen=True, config=_STRICT)
class StartRun:
    """Start of the run, by the coordinator's clock."""

    at_s: float


@dataclass(frozen=True, config=_STRICT)
class Presence:
    """Notice that actors of the sending process are up, or down."""

    names: tuple[str, ...]
    up: bool


@dataclass(frozen=True, config=_STRICT)
class PresenceRequest:
    """Request for the actors of the other process that are up; the reply is `Presence`."""


@dataclass(frozen=True, config=_STRICT)
class TransferStarted:
    """Start of a transfer, in seconds of the run. number: its number in the sending process."""

    number: int
    at_s: float
    sender: str
    receiver: str
    bits: float


@dataclass(frozen=True, config=_STRICT)
class TransferCut:
    """Early end of a transfer."""

    number: int


@dataclass(frozen=True, config=_STRICT)
class LogRecords:
    """Records of a process on another machine (`sim.live.logs`), for the coordinator to write."""

    records: bytes


@dataclass(frozen=True, config=_STRICT)
class Stop:
    """Order to end the run early, and to send all records."""


@dataclass(frozen=True, config=_STRICT)
class Ended:
    """Notice that a process has sent all its records."""


@dataclass(frozen=True, config=_STRICT)
class Leave:
    """Permission for a process to exit: the coordinator has the results."""


CONTROL = Codec(
    TimeRequest,
    TimeReply,
    ProcessReady,
    StartRun,
    Presence,
    PresenceRequest,
    TransferStarted,
    TransferCut,
    LogRecords,
    Stop,
    Ended,
    Leave,
)


def decoded(data: bytes) -> object:
    """Decode a control message. Raises ValueError for other content, even from an authenticated process."""
    content = CONTROL.decode(data)
    if type(content).__module__ != __name__:
        raise ValueError(f"{type(content).__name__} is not a control message")
    return content
