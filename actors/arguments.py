"""Checks of the arguments of actors' methods."""

from numbers import Real


def plain_name(peer: object, verb: str) -> str:
    """Return a peer's name as a plain str; numpy's random choices return a numpy class instead."""
    if not isinstance(peer, str):
        raise TypeError(f"{verb}() needs a peer's name, such as 'client-1', not {peer!r:.60}")
    return str(peer)


def require_seconds(time: object, verb: str, what: str = "the timeout") -> None:
    """Raise TypeError unless `time` is a number; `what` names the argument in the error."""
    if not isinstance(time, float | int | Real):
        number = "a number of seconds, such as 2.0 (a setting of type Duration is one)"
        raise TypeError(f"{what} of {verb}() must be {number}, not {time!r:.60}")


def require_attempts(attempts: object) -> None:
    """Raise ValueError unless `attempts` is a whole number of 1 or more, or None."""
    if attempts is not None and not (isinstance(attempts, int) and attempts >= 1):
        raise ValueError(f"ask() needs attempts of 1 or more, or None for no limit, not {attempts!r:.60}")


def unsendable_message_error(what: str, error: TypeError) -> TypeError:
    """Return the transport's error about a message, without "Envelope", a class that users never see."""
    return TypeError(f"{what}: {str(error).removeprefix('Envelope.message: ')}")
