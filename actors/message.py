"""Messages, which travel between actors, and the errors of their conversations.

Any frozen dataclass is a message. It travels inside an `Envelope`, which only actors and transports see.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from actors.nearest import did_you_mean

_NAMES_COMPARED = 1_000  # when the nearest of many names is looked for
_NAMES_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Question:
    """The number of an ask that may come again: the same number is the same question.

    `attempt`: how often it was sent before. The asker waits for no answer to a number below `open_from` any
    more, and for `repeat_s` seconds at most for one to this.
    """

    number: int
    attempt: int
    open_from: int
    repeat_s: float


@dataclass(frozen=True, slots=True)
class LastingQuestion(Question):
    """A question that is repeated until it is answered. An actor that is busy with it answers `InProgress`.

    `repeat_s` is 0 in an answer that is sent again: such an answer measures the way, not the work.
    """


@dataclass(frozen=True)
class InProgress:
    """The question has arrived and is being handled."""


@dataclass(frozen=True, slots=True)
class RoundMark:
    """Marks a message that is told for a round (`actors.delivery.round_messages`).

    number: of the round. awaits: whether the sender waits for the receiver's message of the same round.
    repeat: None for a message that is told in its turn; k for one that is told again because of the k-th
    request; 0 for one that is told again without a request. delayed_s: how long lost messages have kept the
    sender waiting since its previous round, in seconds.
    """

    number: int
    awaits: bool = True
    repeat: int | None = None
    delayed_s: float = 0.0


@dataclass(frozen=True)
class RepeatRequest:
    """Asks for the receiver's message of class `kind` for round `number`, which is overdue.

    attempt: how many such requests this wait has sent, with this one. after: the class of the sender's own
    message of that round which the receiver answers by `kind`; None if `kind` answers nothing.
    """

    kind: str
    number: int
    attempt: int
    after: str | None = None


@dataclass(frozen=True, slots=True, init=False)
class Envelope:
    """One message on its way, with what is needed to route it and to match an answer to its question.

    `request` is the asker's number of an ask, as a `Question` if that may come again, or the `RoundMark` of a
    message that is told for a round. An answer repeats the number in `answer_to`. `error` is set instead of
    `message` when the asked side failed to answer.
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
        # A third of the time of the generated __init__, and every message passes here.
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
    """Something that an actor may not do, or that went wrong between actors."""


class PeerUnavailable(ActorError):
    """No answer came: the peer is gone, cut off or slow, or a message was lost. Nobody can tell which."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.peer} is unavailable: {self.reason}"


class UnknownPeer(ActorError):
    """Something was sent to a name that no actor ever had; this is not that of an actor that is gone."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        there = ", ".join(names) if len(names) <= _NAMES_SHOWN else f"{names[0]}, {names[1]} to {names[-1]}"
        hint = did_you_mean(name, names[:_NAMES_COMPARED])
        super().__init__(f"nobody in this run is named {name!r}, there are {there}{hint}")
        self.name = name


class RemoteError(ActorError):
    """The peer's handler failed; `text` is its error, as the peer described it."""

    def __init__(self, peer: str, text: str) -> None:
        super().__init__(peer, text)
        self.peer = peer
        self.text = text

    def __str__(self) -> str:
        return f"{self.peer} failed to answer: {self.text}"


class AskInHandler(ActorError):
    """A handler tried to wait for other actors, which would block its own mailbox."""


def describe(error: BaseException) -> str:
    """An error as one line of text, such as `ValueError: no such row`."""
    return f"{type(error).__name__}: {error}"
