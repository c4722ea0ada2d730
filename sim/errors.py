"""Errors for the user of the command line."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

FAILURES = (Exception, SystemExit)
"""Exceptions that count as failures of user code. They include SystemExit, so that sys.exit() in
user code ends no run."""


class UserError(Exception):
    """Invalid input: the command prints the message without a traceback, and exits with 2.

    For a value in a file, the message names the file, the key, the value, and the allowed values.
    `problem` is the message without file and line, with one line for each error; `file` and `line` are None
    if unknown.
    """

    def __init__(self, problem: str, file: Path | None = None, line: int | None = None) -> None:
        super().__init__(problem, file, line)
        self.problem = _with_short_words(problem)
        self.file = file
        self.line = line

    def __str__(self) -> str:
        location = "" if self.file is None else f"{self.file}: "
        location += "" if self.line is None else f"line {self.line}: "
        return "\n".join(location + problem for problem in self.problem.split("\n"))


@contextmanager
def naming_file_in_errors(file: Path | None) -> Iterator[None]:
    """Add a file to UserErrors from this block that name no file."""
    try:
        yield
    except UserError as error:
        error.file = error.file or file
        raise


def require_current_folder() -> None:
    """Raise UserError if the current folder was removed: no relative path works there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the current folder no longer exists: change to another folder") from None


def require_packages(extra: str, what: str, *packages: str) -> None:
    """Raise UserError before a run if packages of an extra are missing."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise UserError(f"{what} needs the package {missing[0]}; run pip install 'coterie[{extra}]'")


class NotVerified(Exception):
    """`run --verify` could not compare the second run; the message gives the reason."""


def one_line(text: object, length: int = 1000) -> str:
    """Return `text` on one printable line of limited length, for text from untrusted files."""
    short = _with_short_words(str(text))
    shown = re.sub(r"[^\x20-\x7e]", lambda match: _printable(match[0]), short[:length])
    return shown if len(short) <= length else f"{shown}..."


# Words longer than any file name. A path keeps its end, which is more informative than its middle.
_LONG_WORD = re.compile(r"(?<!\S)(\S{100})\S{150,}(\S{50})(?!\S)")


def _with_short_words(text: str) -> str:
    """Shorten very long words: a message may quote them before the allowed values."""
    return _LONG_WORD.sub(r"\1...\2", text)


def _printable(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]
