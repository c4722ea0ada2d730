"""Reading the files that a scenario names: data sets, measured traces, matrices, graphs.

Whatever is wrong with one ends as one UserError that names what asked for the file, the file, the place in
it, what is there and what is allowed. Nothing that is read here can run code.
"""

from __future__ import annotations

import gzip
import io
import lzma
import math
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import ValidationError

from sim.errors import UserError, one_line

LIMIT_BYTES = 512 * 2**20
"""No file may have more, or hold more if it ends in .gz or .xz; CIFAR's images have 150 MiB."""

_ARCHIVE = "a .npz file of arrays of numbers"
_SHOWN = 60  # characters of what is wrong
_OPENERS: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}

Result = TypeVar("Result")


def read_regular(path: Path, limit: int) -> bytes:
    """The bytes of a file, at most `limit`; unpacked where its name ends in .gz or .xz.

    To open a pipe waits for who writes to it, and a device may never end: neither is opened. Raises OSError,
    whatever an unpacker raises, and UserError for what is no regular file or too large.
    """
    opener = _OPENERS.get(path.suffix, open)
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise UserError("must be a regular file, and is a folder, a pipe or a device")
    is_larger = opener is open and status.st_size > limit  # then none of it is read
    with opener(path, "rb") as file:
        content: bytes = b"" if is_larger else file.read(limit + 1)
    if is_larger or len(content) > limit:
        raise UserError(_too_large(limit, unpacked=opener is not open))
    return content


def _too_large(limit: int, *, unpacked: bool) -> str:
    return f"has more than {limit // 2**20} MiB{', unpacked' * unpacked}; must have less"


@dataclass(frozen=True)
class InputFile:
    """A file from outside. `key` is what asks for it in the scenario, as `network.latency.file`; or empty.

    All methods raise the UserError of `refusal`, and nothing else, for a file that is not what they read.
    """

    key: str
    path: Path

    def refusal(self, problem: str, place: str = "") -> UserError:
        """The error that says what is wrong with the file, or with a place in it ("line 3")."""
        return UserError(f"{self.key and f'{self.key}: '}{self.path}{place and f', {place}'}: {problem}")

    def content(self) -> bytes:
        """The bytes of the file, unpacked where its name ends in .gz or .xz."""
        try:
            content = read_regular(self.path, LIMIT_BYTES)
        except UserError as error:
            raise self.refusal(error.problem) from None
        except FileNotFoundError:
            raise self.refusal("no such file") from None
        except Exception as error:  # damaged bytes can make the unpackers fail in any way
            raise self.refusal(f"cannot be read: {_words(error)}") from None
        if not content:
            raise self.refusal("is empty")
        return content

    def parsed(self, parse: Callable[[bytes], Result], what: str) -> Result:
        """The content, parsed. Whatever `parse` raises is refused: the file is not `what`, or damaged."""
        content = self.content()
        try:
            return parse(content)
        except UserError:
            raise
        except Exception as error:  # damaged bytes can make any reader fail in any way
            raise self.refusal(f"is not {what}, or damaged: {_words(error)}") from None

    def text(self) -> str:
        return self.parsed(lambda content: content.decode("utf-8-sig"), "text in UTF-8")

    def require_columns(self, there: Sequence[str], columns: Sequence[str], place: str = "") -> None:
        """Refuse a table that has not all of these columns."""
        if missing := [column for column in columns if column not in there]:
            has = f"{shown(list(there))}; must have {', '.join(columns)}"
            raise self.refusal(f"has no column {missing[0]}, but {has}", place)

    # --- arrays -----------------------------------------------------------------------------------------

    def array(self) -> np.ndarray:
        """The array of a .npy file. Arrays of Python objects are pickles, which can run code: refused."""
        found = self.parsed(
            lambda content: np.load(io.BytesIO(content), allow_pickle=False), "a .npy file of numbers"
        )
        if not isinstance(found, np.ndarray):
            raise self.refusal("is an archive of arrays; must be a .npy file, a single one")
        return found

    def arrays(self, *names: str) -> list[np.ndarray]:
        """These arrays of a .npz file, which may hold others as well."""

        def parse(content: bytes) -> list[np.ndarray]:
            with np.load(io.BytesIO(content), allow_pickle=False) as loaded:
                if missing := [name for name in names if name not in loaded]:
                    there = f"{shown(loaded.files)}; must have {', '.join(names)}"
                    raise self.refusal(f"has no array {missing[0]}, but {there}")
                if sum(member.file_size for member in loaded.zip.infolist()) > LIMIT_BYTES:
                    raise self.refusal(_too_large(LIMIT_BYTES, unpacked=True))
                return [loaded[name] for name in names]

        return self.parsed(parse, _ARCHIVE)

    def names(self) -> list[str]:
        """The names of the arrays in a .npz file."""
        return self.parsed(lambda content: np.load(io.BytesIO(content), allow_pickle=False).files, _ARCHIVE)

    def require_numbers(
        self, name: str, array: np.ndarray, *, least: float = -math.inf, most: float = math.inf
    ) -> None:
        """Refuse an array that is empty or has anything but numbers from `least` to `most`."""
        if array.dtype.kind not in "iuf":
            raise self.refusal(f"has values of the type {array.dtype}; must be real numbers", name)
        if array.size == 0:
            raise self.refusal(f"has the shape {array.shape}, so no values; must have some", name)
        values = array.astype(np.float64)  # the limits need not fit into a smaller type
        bad = ~((values >= least) & (values <= most) & np.isfinite(values))
        if bad.any():
            place = tuple(int(index) for index in np.argwhere(bad)[0])
            value = array[place].item()
            raise self.refusal(f"is {value!r}; must be {between(least, most)}", f"{name}{list(place)}")


def shown(value: object) -> str:
    """A value from a file, shortened to one line for a message."""
    text = ", ".join(map(str, value[:9])) if isinstance(value, list) else repr(value)
    text = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _words(error: Exception) -> str:
    """An error of a library in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place, problem = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        return one_line(f"{place}: {problem}" if place else problem, 4 * _SHOWN)
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return shown(text).strip("'\"") if text else type(error).__name__


def between(least: float, most: float) -> str:
    """The range of a number in words."""
    if math.isinf(most):
        return "a number" if math.isinf(least) else f"a number, at least {least:g}"
    return f"a number from {least:g} to {most:g}"
