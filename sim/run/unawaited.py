"""Warnings about coroutines that were called and not awaited, one for each line of code."""

import asyncio
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident

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
    """While this context is open, collect a line for each coroutine that this thread does not await."""
    found: dict[tuple[str, str, int], str] = {}
    lines: list[str] = []
    if not _found:
        _shown.install()
    before, _found[get_ident()] = _found.get(get_ident()), found
    try:
        yield lines
    finally:
        if before is None:
            del _found[get_ident()]
        else:
            _found[get_ident()] = before
        lines += found.values()
        if not _found:
            _shown.remove()


_found: dict[int, dict[tuple[str, str, int], str]] = {}
"""Lines by thread: several runs of a process overlap, each in its thread."""


class _ShownWarnings:
    """Python's handling of warnings, which all threads share, while runs collect some of them."""

    def install(self) -> None:
        self._context = warnings.catch_warnings()
        self._context.__enter__()
        self._original = warnings.showwarning
        warnings.filterwarnings("always", _NEVER_AWAITED.pattern, RuntimeWarning)
        warnings.showwarning = self._show

    def remove(self) -> None:
        self._context.__exit__(None, None, None)

    def _show(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: object = None,
        line: object = None,
    ) -> None:
        match, found = _NEVER_AWAITED.match(str(message)), _found.get(get_ident())
        if match is None or found is None:
            self._original(message, category, filename, lineno)
        elif (key := (match[1], filename, lineno)) not in found:
            found[key] = _unawaited_call_text(*key)


_shown = _ShownWarnings()


def _unawaited_call_text(name: str, file: str, line: int) -> str:
    scope, _, verb = name.rpartition(".")
    call = f"self.{verb}" if scope and not scope.endswith("<locals>") else verb
    where = "" if file.startswith(_MACHINERY) else f" at {location_text(file, line)}"
    called = f"{_actor_name()} called {call}(){where}"
    return f"{called} without await, which has no effect: write `await {call}(...)`"


def _actor_name() -> str:
    """Return the name of the actor with the current task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return "a client" if task is None else task.get_name().partition(":")[0]
