"""Envelopes and errors."""

import pickle
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from actors.message import ActorError, AskInHandler, Envelope, PeerUnavailable, RemoteError, describe


def test_an_envelope_holds_what_it_is_given() -> None:
    values = ("a", "b", 3, 4, 5, "f")
    envelope = Envelope(*values)
    assert tuple(getattr(envelope, field.name) for field in fields(Envelope)) == values
    assert Envelope("a", "b", 3) == Envelope("a", "b", 3, request=None, answer_to=None, error=None)
    assert replace(envelope, receiver="c") == Envelope("a", "c", 3, 4, 5, "f")
    assert repr(Envelope("a", "b", 3)) == (
        "Envelope(sender='a', receiver='b', message=3, request=None, answer_to=None, error=None)"
    )


def test_an_envelope_is_frozen_and_slotted() -> None:
    envelope = Envelope("a", "b", 3)
    with pytest.raises(FrozenInstanceError):
        envelope.sender = "c"  # type: ignore[misc]
    assert not hasattr(envelope, "__dict__")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PeerUnavailable("client-1", "no answer"), "client-1 is unavailable: no answer"),
        (RemoteError("client-1", "ValueError: no"), "client-1 failed to answer: ValueError: no"),
        (AskInHandler("do not"), "do not"),
    ],
)
def test_errors_say_what_happened_and_survive_pickling(error: ActorError, text: str) -> None:
    assert isinstance(error, ActorError)
    assert str(error) == text
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), text, vars(error))


def test_describe() -> None:
    assert describe(ValueError("no such row")) == "ValueError: no such row"
