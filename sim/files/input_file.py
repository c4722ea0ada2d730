"""Reading the files that a scenario names: data sets, measured traces, matrices, graphs.

Whatever is wrong with one ends as one UserError that names what asked for the file, the file, the place in
it, what is there and what is allowed. Nothing that is read here can run code.
"""

from __future__ import annotations

import gzip
import io
import json
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
from sim.files import machine

LIMIT_BYTES = 512 * 2**20
"""No file may have more, or hold more if it ends in .gz or .xz; CIFAR's images have 150 MiB."""

SETTINGS_BYTES = 64 * 2**20
"""No file of settings in JSON may have more: objects take up to twenty times as much as their text."""

_ARCHIVE = "a .npz file of arrays of numbers"
_SHOWN = 60  # characters of what is wrong
_PIECE_BYTES = 1 << 20  # unpacked at a time
_OPENERS: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}

_NO_ROOM = "does not fit in memory; must be smaller"

Result = TypeVar("Result")


def read_regular(path: Path, limit: int) -> bytes:
    """The bytes of a file, at most `limit`; unpacked where its name ends in .gz or .xz.

    To open a pipe waits for who writes to it, and a device may never end: neither is opened. Nor is a file
    without bytes by its status: those of /proc are, and to read one may wait for ever. Raises OSError,
    whatever an unpacker raises, and UserError for what is no regular file or too large.
    """
    opener = _OPENERS.get(path.suffix)
    size = require_regular(path)
    if size > limit:
        raise UserError(too_large(limit))
    if not size:
        return b""
    with open(path, "rb") as file:
        content: bytes = file.read(size)  # not up to the limit: so much memory would be asked for
    if opener is None:
        return content
    if (
        path.suffix == ".gz"
    ):  # zeros may follow, which gzip reads one by one; its own last 8 bytes may be some
        content = content.rstrip(b"\0") + bytes(8)
    unpacked = io.BytesIO()
    with opener(io.BytesIO(content), "rb") as packed:
        while piece := packed.read(_PIECE_BYTES):
            unpacked.write(piece)
            if unpacked.tell() > limit:
                raise UserError(too_large(limit, unpacked=True))
    return unpacked.getvalue()


def require_regular(path: Path) -> int:
    """The bytes of a regular file, by its status. Raises OSError, and UserError for anything else."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise UserError("must be a regular file, and is a folder, a pipe or a device")
    return status.st_size


def too_large(limit: int, *, unpacked: bool = False) -> str:
    """What is wrong with a file that has more bytes than `limit`, in words."""
    return f"has more than {limit // 2**20} MiB{', unpacked' * unpacked}; must have less"


def no_room(size_bytes: float) -> str:
    """What is wrong with contents that take so many bytes in memory, in words; empty where they fit."""
    if size_bytes <= machine.room_bytes():
        return ""
    there = f"{machine.memory_bytes() / 1e9:,.1f} GB"
    return (
        f"takes {size_bytes / 1e9:,.1f} GB of memory once it is read, and this process can have {there}; "
        "must be smaller"
    )


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

    def require_room(self, size_bytes: float) -> None:
        """Refuse a file whose contents take more memory once they are read than this process can have.

        To be asked before they are read: a file of a kB may hold equal values for as many GB.
        """
        if problem := no_room(size_bytes):
            raise self.refusal(problem)

    def content(self, limit: int | None = None) -> bytes:
        """The bytes of the file, unpacked where its name ends in .gz or .xz. Too large ones are refused."""
        try:
            content = read_regular(self.path, LIMIT_BYTES if limit is None else limit)
        except UserError as error:
            raise self.refusal(error.problem) from None
        except FileNotFoundError:
            raise self.refusal("no such file") from None
        except MemoryError:
            raise self.refusal(_NO_ROOM) from None
        except Exception as error:  # damaged bytes can make the unpackers fail in any way
            raise self.refusal(f"cannot be read: {_words(error)}") from None
        if not content:
            raise self.refusal("is empty")
        return content

    def parsed(self, parse: Callable[[bytes], Result], what: str, limit: int | None = None) -> Result:
        """The content, parsed. Whatever `parse` raises is refused: the file is not `what`, or damaged."""
        content = self.content(limit)
        try:
            return parse(content)
        except UserError:
            raise
        except MemoryError:
            raise self.refusal(_NO_ROOM) from None
        except Exception as error:  # damaged bytes can make any reader fail in any way
            raise self.refusal(f"is not {what}, or damaged: {_words(error)}") from None

    def text(self) -> str:
        return self.parsed(lambda content: content.decode("utf-8-sig"), "text in UTF-8")

    def json(self) -> Any:
        """What a file of JSON holds."""

        def parse(content: bytes) -> Any:
            # "[]," takes eight bytes in a list, and itself 56; a number up to 32.
            objects = 64 * (content.count(b"[") + content.count(b"{")) + 40 * content.count(b",")
            if objects > 4 * LIMIT_BYTES:
                raise self.refusal(too_large(4 * LIMIT_BYTES, unpacked=True))
            self.require_room(objects)
            return json.loads(content)

        return self.parsed(parse, "JSON")

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
                    raise self.refusal(too_large(LIMIT_BYTES, unpacked=True))
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
        # Limits need not fit into the array's type: float64 is compared, which numpy makes piece by piece.
        bad = ~((array >= np.float64(least)) & (array <= np.float64(most)) & np.isfinite(array))
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
