"""Checks of the arguments of actors' verbs, with the errors for those of another type."""

from numbers import Real


def plain_name(peer: object, verb: str) -> str:
    """A peer's name as plain text: numpy's choices among names are of a class of its own."""
    if not isinstance(peer, str):
        raise TypeError(f"{verb}() needs a peer's name, such as 'client-1', not {peer!r:.60}")
    return str(peer)


def require_seconds(time: object, verb: str, what: str = "a timeout") -> None:
    """Raises TypeError unless `time`, which is what is said, is a number."""
    if not isinstance(time, float | int | Real):
        number = "a number of seconds, such as 2.0 (a setting of type Duration is one)"
        raise TypeError(f"{verb}() needs for {what} {number}, not {time!r:.60}")


def require_attempts(attempts: object) -> None:
    """Raises ValueError unless `attempts` is a whole number of 1 or more, or None."""
    if attempts is not None and not (isinstance(attempts, int) and attempts >= 1):
        raise ValueError(f"ask() needs attempts of 1 or more, or None for no limit, not {attempts!r:.60}")


def unsendable(what: str, error: TypeError) -> TypeError:
    """The transport's refusal of a message, without the envelope, of which the sender knows nothing."""
    return TypeError(f"{what}: {str(error).removeprefix('Envelope.message: ')}")
