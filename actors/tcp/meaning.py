"""Checks of decoded messages before an actor sees them: well-formed bytes may hold any values."""

import math

from actors.message import Envelope, Question, RepeatRequest, RoundMark


class Meaningless(ValueError):
    """Error: a well-formed message that no actor would have sent."""


def require_valid_envelope(message: object) -> Envelope:
    """Return the message if it is an envelope with parts of the declared types. Raises Meaningless."""
    if type(message) is not Envelope:
        raise Meaningless(f"{type(message).__name__} is not an envelope")
    for part in (message.sender, message.receiver):
        if type(part) is not str:
            raise Meaningless("sender and receiver must be names")
    if not (message.error is None or type(message.error) is str):
        raise Meaningless("an error must be text")
    request, answer_to = message.request, message.answer_to
    if not (request is None or _is_number(request) or _is_question(request) or _is_mark(request)):
        raise Meaningless("a request must be a number, a question or the mark of a round")
    if not (answer_to is None or _is_number(answer_to) or _is_question(answer_to)):
        raise Meaningless("an answer must refer to a number or a question")
    if type(request) is not RoundMark and isinstance(message.message, RepeatRequest):
        raise Meaningless("a request for a message of a round must have a mark")
    if isinstance(message.message, RepeatRequest) and not _is_repeat_request(message.message):
        raise Meaningless("a request for a message of a round must name class, round and attempt")
    return message


def _is_number(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_seconds(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0  # type: ignore[arg-type, operator]


def _is_question(value: object) -> bool:
    return isinstance(value, Question) and (
        all(map(_is_number, (value.number, value.attempt, value.open_from))) and _is_seconds(value.repeat_s)
    )


def _is_mark(value: object) -> bool:
    return type(value) is RoundMark and (
        _is_number(value.number)
        and type(value.awaits) is bool
        and (value.repeat is None or _is_number(value.repeat))
        and _is_seconds(value.delayed_s)
    )


def _is_repeat_request(value: RepeatRequest) -> bool:
    names = (value.kind, value.after or "")
    return all(type(name) is str for name in names) and _is_number(value.number) and _is_number(value.attempt)
