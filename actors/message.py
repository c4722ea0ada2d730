"""What travels between actors, and the errors of their conversations.

Any frozen dataclass is a message. It travels inside an `Envelope`, which only actors and transports see.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, init=False)
class Envelope:
    """One message on its way, with what is needed to route it and to match an answer to its question.

    `request` is the asker's number of an ask; the answer repeats it in `answer_to`. `error` is set instead of
    `message` when the asked side failed to answer.
    """

    sender: str
    receiver: str
    message: object | None
    request: int | None = None
    answer_to: int | None = None
    error: str | None = None

    def __init__(
        self,
        sender: str,
        receiver: str,
        message: object | None,
        request: int | None = None,
        answer_to: int | None = None,
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
