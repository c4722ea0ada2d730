"""Messages between actors, and the errors of their communication.

Any frozen dataclass is a message. It is sent inside an `Envelope`, which only actors and transports see.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from actors.nearest import did_you_mean

_NAMES_COMPARED = 1_000  # number of names in which the nearest one is looked for
_NAMES_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Question:
    """Number of an `ask` that may be repeated; repetitions have the same number.

    `attempt`: how often the question was sent before. The asker no longer waits for answers to numbers below
    `open_from`, and waits at most `repeat_s` seconds for the answer to this one.
    """

    number: int
    attempt: int
    open_from: int
    repeat_s: float


@dataclass(frozen=True, slots=True)
class LastingQuestion(Question):
    """Question that is repeated until it is answered. An actor that is busy with it answers `InProgress`.

    `repeat_s` is 0 in an answer that is sent again: that answer measures the network, not the work.
    """


@dataclass(frozen=True)
class InProgress:
    """Notice that a question has arrived and is being handled."""


@dataclass(frozen=True, slots=True)
class RoundMark:
    """Mark of a message of a round (`actors.delivery.round_messages`).

    number: the number of the round. awaits: whether the sender waits for the receiver's message of the same
    round. repeat: None for a first transmission; k for a repetition that answers the k-th request; 0 for a
    repetition without a request. delayed_s: seconds by which lost messages have delayed the sender since its
    previous round.
    """

    number: int
    awaits: bool = True
    repeat: int | None = None
    delayed_s: float = 0.0


@dataclass(frozen=True)
class RepeatRequest:
    """Request for the receiver's message of class `kind` for round `number`, which is overdue.

    attempt: number of requests in this wait, including this one. after: class of the sender's message of that
    round which `kind` answers; None if `kind` answers no message.
    """

    kind: str
    number: int
    attempt: int
    after: str | None = None


@dataclass(frozen=True, slots=True, init=False)
class Envelope:
    """One message in transit, with the data that route it and match an answer to its question.

    `request` is the number that the asker gave its question (a `Question` if it may be repeated), or the
    `RoundMark` of a message of a round. An answer repeats the number in `answer_to`. `error` is set instead
    of `message` if the asked actor failed to answer.
    """

    sender: str
    receiver: str
    message: object | None
    request: int | Question | RoundMark | None = None
    answer_to: int | Question | None = None
    error: str | None = None

    def __init__(
        self,
        sender: str,
        receiver: str,
        message: object | None,
        request: int | Question | RoundMark | None = None,
        answer_to: int | Question | None = None,
        error: str | None = None,
    ) -> None:
        # Takes a third of the time of the generated __init__; every message is created here.
        _set_sender(self, sender)
        _set_receiver(self, receiver)
        _set_message(self, message)
        _set_request(self, request)
        _set_answer_to(self, answer_to)
        _set_error(self, error)


_set_sender, _set_receiver, _set_message, _set_request, _set_answer_to, _set_error = (
    vars(Envelope)[field.name].__set__ for field in fields(Envelope)
)


class ActorError(Exception):
    """Error of an actor, or of the communication between actors."""


class PeerUnavailable(ActorError):
    """Error: no answer arrived. A client cannot tell if the peer is down or slow, or a message was lost."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.peer} is unavailable: {self.reason}"


class UnknownPeer(ActorError):
    """Error: a message was sent to a name that no actor ever had. An actor that has left causes no error."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        known = ", ".join(names) if len(names) <= _NAMES_SHOWN else f"{names[0]}, {names[1]} to {names[-1]}"
        hint = did_you_mean(name, names[:_NAMES_COMPARED])
        super().__init__(f"no actor in this run has the name {name!r}; the names are {known}{hint}")
        self.name = name


class RemoteError(ActorError):
    """Error: the peer's handler failed; `text` describes the error."""

    def __init__(self, peer: str, text: str) -> None:
        super().__init__(peer, text)
        self.peer = peer
        self.text = text

    def __str__(self) -> str:
        return f"{self.peer} failed to answer: {self.text}"


class AskInHandler(ActorError):
    """Error: a handler tried to wait for other actors, which would block its mailbox."""


def describe(error: BaseException) -> str:
    """Return an error as one line of text, such as `ValueError: no such row`."""
    return f"{type(error).__name__}: {error}"
