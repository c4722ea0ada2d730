"""What processes tell each other beside messages, as it should be and as it may be."""

from dataclasses import fields
from typing import Any

import pytest

from actors.message import Envelope
from sim.live.control import (
    CONTROL,
    Ended,
    Leave,
    LogRecords,
    Presence,
    PresenceRequest,
    ProcessReady,
    StartRun,
    Stop,
    TimeReply,
    TimeRequest,
    TransferCut,
    TransferStarted,
    decoded,
)

SOUND = [
    TimeRequest(1.0),
    TimeReply(1.0, 2.0),
    ProcessReady("1234abcd"),
    StartRun(3.5),
    Presence(("client-0", "client-1"), True),
    PresenceRequest(),
    TransferStarted(1, 0.5, "client-0", "client-1", 800.0),
    TransferCut(1),
    LogRecords(b"records"),
    Stop(),
    Ended(),
    Leave(),
]
LIES: list[tuple[Any, ...]] = [
    (TimeRequest, "now"),
    (StartRun, float("nan")),
    (StartRun, True),  # a truth value is no time
    (Presence, ({"client-0": 1},), True),
    (Presence, "client-0", True),
    (Presence, ("client-0",), 1),
    (TransferStarted, 1, float("inf"), "client-0", "client-1", 800.0),
    (TransferStarted, 1, 0.5, {}, "client-1", 800.0),
    (TransferStarted, 1, 0.5, "client-0", "client-1", "all"),
    (TransferCut, (1,)),
    (LogRecords, "records"),
]


def lying(kind: type, *values: object) -> object:
    """What a process would tell that does not look at what it tells."""
    made = object.__new__(kind)
    for field, value in zip(fields(kind), values, strict=True):  # type: ignore[arg-type]
        object.__setattr__(made, field.name, value)
    return made


@pytest.mark.parametrize("content", SOUND, ids=repr)
def test_what_is_sound_passes(content: object) -> None:
    assert decoded(CONTROL.encode(content)) == content


@pytest.mark.parametrize("lie", LIES, ids=repr)
def test_what_is_not_what_it_says_is_refused(lie: tuple[Any, ...]) -> None:
    kind = lie[0]
    names = "|".join(field.name for field in fields(kind))
    with pytest.raises(ValueError, match=rf"1 validation error for {kind.__name__}\s+({names})"):
        decoded(CONTROL.encode(lying(*lie)))


def test_what_is_told_to_actors_is_nothing_of_this() -> None:
    with pytest.raises(ValueError, match="is not a control message"):
        decoded(CONTROL.encode(Envelope("client-0", "client-1", None)))
