"""Warnings about errors of any class that a method catches and does not report.

Tracing doubles a run's time. A run is therefore traced only if the code has a handler that catches all
errors, and only for a few thousand calls of that code: repeated errors occur in the first calls.
"""

import ast
import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from actors.message import PeerUnavailable, RemoteError, describe
from actors.source_location import location_text
from sim.plugins.source_files import parse_source

_CALLS_MAX = 5_000  # calls of functions of these files; each resumption of a coroutine counts as a call
_ALL = ("Exception", "BaseException")
_TELLING = ("print", "log", "logger", "logging", "traceback", "warnings")
_EXPECTED = (PeerUnavailable, RemoteError, StopIteration, StopAsyncIteration)
"""Errors that methods expect: failures of peers, and the end of an iterator."""


@contextmanager
def swallowed_errors(files: Iterable[str]) -> Iterator[list[str]]:
    """Collect, when this context ends, a line about the errors that code of these files caught silently."""
    handlers = {file: lines for file in files if (lines := silent_handlers(file))}
    found: list[str] = []
    if not handlers or sys.gettrace() is not None:  # a debugger is attached
        yield found
        return
    counts = _Counts(handlers)
    sys.settrace(counts.called)
    try:
        yield found
    finally:
        sys.settrace(None)
        found += counts.in_words()


def silent_handlers(file: str) -> frozenset[int]:
    """Return the lines of a file's `except` clauses that catch all errors and neither report nor use them."""
    return frozenset(
        node.lineno
        for node in ast.walk(parse_source(file))
        if isinstance(node, ast.ExceptHandler) and _catches_all(node.type) and not _reports_error(node)
    )


def _catches_all(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(each is None or (isinstance(each, ast.Name) and each.id in _ALL) for each in kinds)


def _reports_error(handler: ast.ExceptHandler) -> bool:
    """Return True if a handler raises an error, uses the caught one, or prints."""
    names = (*_TELLING, handler.name)
    nodes = [node for statement in handler.body for node in ast.walk(statement)]
    return any(
        isinstance(node, ast.Raise) or (isinstance(node, ast.Name) and node.id in names) for node in nodes
    )


class _Counts:
    """Counts of the errors in silent handlers. handlers: their lines, by file."""

    def __init__(self, handlers: Mapping[str, frozenset[int]]) -> None:
        self._handlers = handlers
        self._count = 0
        self._calls_left = _CALLS_MAX
        self._clients: dict[str, None] = {}
        self._first = ""
        # The error that passes through the current frame. It is not kept longer, as its frames hold models.
        self._passing: tuple[BaseException, TracebackType] | None = None

    def called(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace a frame of these files; a function for `sys.settrace`."""
        if frame.f_code.co_filename not in self._handlers:
            return None
        self._calls_left -= 1
        if self._calls_left < 0:
            sys.settrace(None)
            return None
        return self._inside

    def _inside(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "exception":
            self._passing = argument[1:]
        elif event == "return":
            self._passing = None
        elif self._passing is not None and frame.f_lineno in self._handlers[frame.f_code.co_filename]:
            self._caught(*self._passing, location_text(frame.f_code.co_filename, frame.f_lineno))
            self._passing = None
        return self._inside

    def _caught(self, error: BaseException, passed: TracebackType, handler: str) -> None:
        if not isinstance(error, Exception) or isinstance(error, _EXPECTED):
            return
        task = asyncio.current_task()
        client = "a client" if task is None else task.get_name().partition(":")[0]
        self._count += 1
        self._clients[client] = None
        self._first = self._first or f"{self._raised_at(passed)}: {describe(error)} (caught at {handler})"

    def _raised_at(self, passed: TracebackType) -> str:
        """Return the innermost line of these files that an error passed through."""
        step: TracebackType | None = passed
        line = ""
        while step is not None:
            file = step.tb_frame.f_code.co_filename
            line = location_text(file, step.tb_lineno) if file in self._handlers else line
            step = step.tb_next
        return line

    def in_words(self) -> list[str]:
        """Return a line, if there were errors."""
        if not self._count:
            return []
        first, *others = self._clients
        who = first if not others else f"{first} and {len(others):,} other{'s' if len(others) > 1 else ''}"
        errors = "an error was" if self._count == 1 else f"{self._count:,} errors were"
        watched = f" during the first {_CALLS_MAX:,} calls of this code" if self._calls_left < 0 else ""
        which = "" if self._count == 1 else "; the first"
        return [f"{errors} caught and not reported in the code of {who}{watched}{which}: {self._first}"]
