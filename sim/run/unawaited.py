"""Warnings about coroutines that were called and not awaited, one for each line of code."""

import asyncio
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import actors
import protocols.framework.client
from actors.source_location import location_text

_NEVER_AWAITED = re.compile(r"coroutine '(.+)' was never awaited")
# Code in which Python only notices the coroutine, at the end of a call; the error is elsewhere.
_MACHINERY = (
    str(Path(__file__).parents[1]),
    str(Path(actors.__file__).parent),
    protocols.framework.client.__file__,
)


@contextmanager
def unawaited_coroutines() -> Iterator[list[str]]:
    """Collect a line for each coroutine that was never awaited while this context is open."""
    known: set[tuple[str, str, int]] = set()
    found: list[str] = []

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: object = None,
        line: object = None,
    ) -> None:
        match = _NEVER_AWAITED.match(str(message))
        if match is None:
            original(message, category, filename, lineno)
        elif (key := (match[1], filename, lineno)) not in known:
            known.add(key)
            found.append(_in_words(*key))

    with warnings.catch_warnings():
        original = warnings.showwarning
        warnings.filterwarnings("always", _NEVER_AWAITED.pattern, RuntimeWarning)
        warnings.showwarning = show
        yield found


def _in_words(name: str, file: str, line: int) -> str:
    scope, _, verb = name.rpartition(".")
    call = f"self.{verb}" if scope and not scope.endswith("<locals>") else verb
    where = "" if file.startswith(_MACHINERY) else f" at {location_text(file, line)}"
    return f"{_who()} called {call}(){where} without await, which has no effect: write `await {call}(...)`"


def _who() -> str:
    """Return the name of the actor with the current task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return "a client" if task is None else task.get_name().partition(":")[0]
