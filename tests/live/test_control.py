"""What processes tell each other beside messages, as it should be and as it may be."""

from typing import Any

import pytest

from actors.message import Envelope
from sim.live.control import (
    CONTROL,
    AskPresence,
    AskTime,
    Begin,
    Ended,
    Leave,
    Presence,
    ProcessReady,
    TellTime,
    TransferBegun,
    TransferCut,
    require_sound,
)

SOUND = [
    AskTime(1.0),
    TellTime(1.0, 2.0),
    ProcessReady("1234abcd"),
    Begin(3.5),
    Presence(("client-0", "client-1"), True),
    AskPresence(),
    TransferBegun(1, 0.5, "client-0", "client-1", 800.0),
    TransferCut(1),
    Ended(True, b"{}", b"", b""),
    Leave(),
]
LIES: list[Any] = [
    AskTime("now"),  # type: ignore[arg-type]
    Begin(float("nan")),
    Begin(True),  # a truth value is no time
    Presence(({"client-0": 1},), True),  # type: ignore[arg-type]
    Presence("client-0", True),  # type: ignore[arg-type]
    Presence(("client-0",), 1),  # type: ignore[arg-type]
    TransferBegun(1, float("inf"), "client-0", "client-1", 800.0),
    TransferBegun(1, 0.5, {}, "client-1", 800.0),  # type: ignore[arg-type]
    TransferBegun(1, 0.5, "client-0", "client-1", "all"),  # type: ignore[arg-type]
    TransferCut((1,)),  # type: ignore[arg-type]
    Ended(True, "{}", b"", b""),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("content", SOUND, ids=repr)
def test_what_is_sound_passes(content: object) -> None:
    require_sound(CONTROL.decode(CONTROL.encode(content)))


@pytest.mark.parametrize("content", LIES, ids=repr)
def test_what_is_not_what_it_says_is_refused(content: object) -> None:
    with pytest.raises(ValueError, match=rf"{type(content).__name__}\.\w+ is no "):
        require_sound(CONTROL.decode(CONTROL.encode(content)))


def test_what_is_told_to_actors_is_nothing_of_this() -> None:
    content = CONTROL.decode(CONTROL.encode(Envelope("client-0", "client-1", None)))
    with pytest.raises(ValueError, match="is nothing that processes tell"):
        require_sound(content)
