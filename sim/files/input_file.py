"""Input files that a scenario names: data sets, measured traces, matrices, graphs.

Every error of a file becomes one UserError with the scenario's key, the file, the position in it, the found
value and the allowed values. Reading a file never executes code.
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
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import ValidationError

from sim.errors import UserError, one_line
from sim.files import machine

if TYPE_CHECKING:
    from torch import Tensor

LIMIT_BYTES = 512 * 2**20
"""Largest size of a file, also after unpacking .gz or .xz; CIFAR's images take 150 MiB."""

SETTINGS_BYTES = 64 * 2**20
"""Largest size of a JSON file of settings; objects take up to twenty times the size of their text."""

_ARCHIVE = "a .npz file of arrays of numbers"
_SHOWN = 60  # characters of a wrong value in messages
_NUMBER_BYTES = 8  # memory of a number of a tensor during its conversion to float32
_PIECE_BYTES = 1 << 20  # bytes unpacked at a time
_OPENERS: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}

_NO_ROOM = "does not fit in memory; must be smaller"

Result = TypeVar("Result")


def read_regular(path: Path, limit: int) -> bytes:
    """Read a file of at most `limit` bytes, and unpack it if its name ends in .gz or .xz.

    Pipes and devices are not opened, since reading them may never end. Files of size 0 are also not opened:
    files in /proc have this size, and reading them may block. Raises OSError, any error of an unpacker, and
    UserError for files that are too large or not regular.
    """
    opener = _OPENERS.get(path.suffix)
    size = require_regular(path)
    if size > limit:
        raise UserError(too_large_message(limit))
    if not size:
        return b""
    with open(path, "rb") as file:
        content: bytes = file.read(size)  # a read up to the limit would allocate that much memory
    if opener is None:
        return content
    if (
        path.suffix == ".gz"
    ):  # drop zero padding, which gzip reads byte by byte, except for zeros in its last 8 bytes
        content = content.rstrip(b"\0") + bytes(8)
    unpacked = io.BytesIO()
    with opener(io.BytesIO(content), "rb") as packed:
        while piece := packed.read(_PIECE_BYTES):
            unpacked.write(piece)
            if unpacked.tell() > limit:
                raise UserError(too_large_message(limit, unpacked=True))
    return unpacked.getvalue()


def require_regular(path: Path) -> int:
    """Return the size of a regular file in bytes. Raises OSError, and UserError for other files."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise UserError("must be a regular file, not a folder, pipe or device")
    return status.st_size


def too_large_message(limit: int, *, unpacked: bool = False) -> str:
    """Return the message for a file with more than `limit` bytes."""
    return f"exceeds {limit // 2**20} MiB{' when unpacked' * unpacked}; must be smaller"


def no_room_message(size_bytes: float) -> str:
    """Return the message for contents that take `size_bytes` in memory; empty if they fit."""
    if size_bytes <= machine.room_bytes():
        return ""
    available = f"{machine.memory_bytes() / 1e9:,.1f} GB"
    return (
        f"takes {size_bytes / 1e9:,.1f} GB of memory when read, but this process can use only {available}; "
        "must be smaller"
    )


@dataclass(frozen=True)
class InputFile:
    """An input file. `key` is the scenario's key for it, such as `network.latency.file`, or empty.

    For an unsuitable file, all methods raise only the UserError of `refusal`.
    """

    key: str
    path: Path

    def refusal(self, problem: str, position: str = "") -> UserError:
        """Return the error about a problem in the file, or at a position in it ("line 3")."""
        where = f"{self.path}{position and f', {position}'}"
        return UserError(f"{self.key and f'{self.key}: '}{where}: {problem}")

    def require_room(self, size_bytes: float) -> None:
        """Reject a file that takes more memory when read than this process can use.

        Call it before reading: equal values can compress from gigabytes to kilobytes.
        """
        if problem := no_room_message(size_bytes):
            raise self.refusal(problem)

    def content(self, limit: int | None = None) -> bytes:
        """Read the file, and unpack .gz and .xz files. Too large and empty files are rejected."""
        try:
            content = read_regular(self.path, LIMIT_BYTES if limit is None else limit)
        except UserError as error:
            raise self.refusal(error.problem) from None
        except FileNotFoundError:
            raise self.refusal("no such file") from None
        except MemoryError:
            raise self.refusal(_NO_ROOM) from None
        except Exception as error:  # unpackers raise any error for damaged bytes
            raise self.refusal(f"cannot be read: {_library_error_text(error)}") from None
        if not content:
            raise self.refusal("is empty")
        return content

    def parsed(self, parse: Callable[[bytes], Result], what: str, limit: int | None = None) -> Result:
        """Parse the content. Any error of `parse` is reported as: the file is not `what`, or damaged."""
        content = self.content(limit)
        try:
            return parse(content)
        except UserError:
            raise
        except MemoryError:
            raise self.refusal(_NO_ROOM) from None
        except Exception as error:  # readers raise any error for damaged bytes
            raise self.refusal(f"is not {what}, or is damaged: {_library_error_text(error)}") from None

    def text(self) -> str:
        return self.parsed(lambda content: content.decode("utf-8-sig"), "text in UTF-8")

    def json(self) -> Any:
        """Read a JSON file."""

        def parse(content: bytes) -> Any:
            # "[]" takes 8 bytes in a list, and 56 for itself; a number up to 32.
            objects = 64 * (content.count(b"[") + content.count(b"{")) + 40 * content.count(b",")
            if objects > 4 * LIMIT_BYTES:
                raise self.refusal(too_large_message(4 * LIMIT_BYTES, unpacked=True))
            self.require_room(objects)
            return json.loads(content)

        return self.parsed(parse, "JSON")

    def require_columns(self, found: Sequence[str], columns: Sequence[str], position: str = "") -> None:
        """Reject a table that lacks one of these columns."""
        if missing := [column for column in columns if column not in found]:
            has = f"{excerpt(list(found))}; must have {', '.join(columns)}"
            raise self.refusal(f"has no column {missing[0]}, but {has}", position)

    # --- arrays -----------------------------------------------------------------------------------------

    def array(self) -> np.ndarray:
        """Read the array of a .npy file. Pickled Python objects, which can run code, are rejected."""
        found = self.parsed(
            lambda content: np.load(io.BytesIO(content), allow_pickle=False), "a .npy file of numbers"
        )
        if not isinstance(found, np.ndarray):
            raise self.refusal("is an archive of arrays; must be a .npy file with one array")
        return found

    def arrays(self, *names: str) -> list[np.ndarray]:
        """Read these arrays of a .npz file, which may contain other arrays."""

        def parse(content: bytes) -> list[np.ndarray]:
            with np.load(io.BytesIO(content), allow_pickle=False) as loaded:
                if missing := [name for name in names if name not in loaded]:
                    has = f"{excerpt(loaded.files)}; must have {', '.join(names)}"
                    raise self.refusal(f"has no array {missing[0]}, but {has}")
                if sum(member.file_size for member in loaded.zip.infolist()) > LIMIT_BYTES:
                    raise self.refusal(too_large_message(LIMIT_BYTES, unpacked=True))
                return [loaded[name] for name in names]

        return self.parsed(parse, _ARCHIVE)

    def tensors(self) -> tuple[dict[str, Tensor], Mapping[str, str]]:
        """Return the tensors of a .safetensors file, and its text metadata."""
        from safetensors import SafetensorError, safe_open

        if not self.path.is_file():  # opening a pipe would wait for a writer
            raise self.refusal("no such file" if not os.path.lexists(self.path) else "must be a regular file")
        try:
            with safe_open(self.path, framework="pt") as opened:
                names = list(opened.keys())
                shapes = [opened.get_slice(name).get_shape() for name in names]
                self.require_room(_NUMBER_BYTES * sum(map(math.prod, shapes)))  # sparse files state any size
                stored = {name: opened.get_tensor(name) for name in names}
                metadata = opened.metadata() or {}
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            what = f"is not a .safetensors file, or is damaged: {excerpt(str(error))}"
            raise self.refusal(what) from None
        return stored, metadata

    def names(self) -> list[str]:
        """Return the names of the arrays in a .npz file."""
        return self.parsed(lambda content: np.load(io.BytesIO(content), allow_pickle=False).files, _ARCHIVE)

    def require_numbers(
        self, name: str, array: np.ndarray, *, least: float = -math.inf, most: float = math.inf
    ) -> None:
        """Reject an array that is empty or has values other than numbers from `least` to `most`."""
        if array.dtype.kind not in "iuf":
            raise self.refusal(f"has values of type {array.dtype}; must be real numbers", name)
        if array.size == 0:
            raise self.refusal(f"has shape {array.shape} without values; must have at least one value", name)
        # Limits may not fit the array's type: compare as float64, which numpy converts in pieces.
        bad = ~((array >= np.float64(least)) & (array <= np.float64(most)) & np.isfinite(array))
        if bad.any():
            position = tuple(int(index) for index in np.argwhere(bad)[0])
            value = array[position].item()
            raise self.refusal(
                f"is {value!r}; must be {number_range_text(least, most)}", f"{name}{list(position)}"
            )


def excerpt(value: object) -> str:
    """Return a value from a file, shortened to one line for a message."""
    text = ", ".join(map(str, value[:9])) if isinstance(value, list) else repr(value)
    text = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _library_error_text(error: Exception) -> str:
    """Return an error of a library in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        location, problem = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        return one_line(f"{location}: {problem}" if location else problem, 4 * _SHOWN)
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return excerpt(text).strip("'\"") if text else type(error).__name__


def number_range_text(least: float, most: float) -> str:
    """Describe the range of a number."""
    if math.isinf(most):
        return "a number" if math.isinf(least) else f"a number, at least {least:g}"
    return f"a number from {least:g} to {most:g}"
