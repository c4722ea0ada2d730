"""Errors that are meant for the person at the command line."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path


class UserError(Exception):
    """Input that is refused: the command shows the message without a traceback, and exits with 2.

    The message names the file, the key and the value, and says what is allowed. `problem` is the message
    without file and line, one line for each thing that is wrong; `file` and `line` are None if unknown.
    """

    def __init__(self, problem: str, file: Path | None = None, line: int | None = None) -> None:
        super().__init__(problem, file, line)
        self.problem = _with_short_words(problem)
        self.file = file
        self.line = line

    def __str__(self) -> str:
        place = "" if self.file is None else f"{self.file}: "
        place += "" if self.line is None else f"line {self.line}: "
        return "\n".join(place + problem for problem in self.problem.split("\n"))


@contextmanager
def errors_about(file: Path | None) -> Iterator[None]:
    """Add a file to UserErrors from this block that name none."""
    try:
        yield
    except UserError as error:
        error.file = error.file or file
        raise


def require_current_folder() -> None:
    """UserError where the current folder was removed: no path leads anywhere from there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the current folder does not exist any more: change to one that does") from None


def require_packages(extra: str, what: str, *packages: str) -> None:
    """UserError if packages of an extra are missing that something needs: before a run, not behind it."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise UserError(f"{what}: needs the package {missing[0]}; pip install 'coterie[{extra}]'")


class NotVerified(Exception):
    """`run --verify` could not compare the second run; says why."""


def one_line(text: object, length: int = 1000) -> str:
    """`text` as it can be printed on one line of bearable length, whatever stands in a stranger's file."""
    short = _with_short_words(str(text))
    shown = re.sub(r"[^\x20-\x7e]", lambda match: _printable(match[0]), short[:length])
    return shown if len(short) <= length else f"{shown}..."


# Longer than the name of any file. A path keeps its end, which tells more than its middle.
_LONG_WORD = re.compile(r"(?<!\S)(\S{100})\S{150,}(\S{50})(?!\S)")


def _with_short_words(text: str) -> str:
    """A message may quote what somebody wrote, of any length; what is allowed comes behind it."""
    return _LONG_WORD.sub(r"\1...\2", text)


def _printable(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]
