"""Damage to bytes, arrays, tables and files, whatever they mean."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.values import TEXTS, odd_number

_READ_MAX = 2**26


def can_be_read(path: Path) -> bool:
    """Whether another change left a regular file there, of a size that a reader survives."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= _READ_MAX


# Bytes --------------------------------------------------------------------------------------------------


def of_bytes(content: bytes, rng: Random) -> tuple[bytes, str]:
    """The bytes, damaged, and how."""
    place = rng.randrange(len(content) + 1)
    length = rng.choice((1, 2, 8, 100))
    match rng.choice(
        ("cut", "cut", "flip", "flip", "insert", "remove", "empty", "twice", "zeros", "junk", "swap")
    ):
        case "cut":
            place = rng.choice((place, min(place, 10), max(len(content) - length, 0)))
            return content[:place], f"cut after {place} bytes"
        case "flip":
            damaged = bytearray(content)
            for _ in range(length):
                if damaged:
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            return bytes(damaged), f"{length} bytes overwritten"
        case "insert":
            return content[:place] + rng.randbytes(length) + content[
                place:
            ], f"{length} bytes inserted at {place}"
        case "remove":
            return content[:place] + content[place + length :], f"{length} bytes removed at {place}"
        case "empty":
            return b"", "empty"
        case "twice":
            return content * 2, "everything twice"
        case "zeros":
            return bytes(len(content)), "all zero"
        case "junk":
            return rng.randbytes(rng.choice((1, 10, 1000))), "nothing but junk"
    return content[place:] + content[:place], f"the parts before and after {place} swapped"


# Arrays -------------------------------------------------------------------------------------------------


def of_array(array: np.ndarray, rng: Random) -> tuple[np.ndarray, str]:
    """The array, with another type, shape or contents, and what was done."""
    return rng.choice((_other_type, _other_shape, _other_rows, _other_values, _other_values))(array, rng)


def _other_type(array: np.ndarray, rng: Random) -> tuple[np.ndarray, str]:
    kind = rng.choice(
        ("f8", "f4", "f2", "c16", "?", "i1", "i8", "u8", ">i4", "U3", "S2", "O", "M8[s]", "V4", "i4,f8")
    )
    try:
        with np.errstate(all="ignore"):
            return array.astype(kind), f"as {kind}"
    except (TypeError, ValueError):
        return np.zeros(array.shape, kind), f"zeros of {kind}"


def _other_shape(array: np.ndarray, rng: Random) -> tuple[np.ndarray, str]:
    shapes: dict[str, Callable[[], np.ndarray]] = {
        "flat": lambda: array.reshape(-1),
        "transposed": lambda: array.T,
        "an axis more": lambda: array[..., np.newaxis],
        "an axis more in front": lambda: array[np.newaxis],
        "the first only": lambda: array[0] if array.ndim and len(array) else array,
        "a column less": lambda: array[..., :-1] if array.ndim else array,
        "channels last": lambda: np.moveaxis(array, 1, -1) if array.ndim > 1 else array,
        "a single number": lambda: np.array(7, array.dtype),
        "without columns": lambda: array[..., :0] if array.ndim else array,
    }
    how = rng.choice(list(shapes))
    return shapes[how](), how


def _other_rows(array: np.ndarray, rng: Random) -> tuple[np.ndarray, str]:
    if array.ndim == 0:
        return array, "nothing"
    rows: dict[str, Callable[[], np.ndarray]] = {
        "no rows": lambda: array[:0],
        "one row": lambda: array[:1],
        "a row less": lambda: array[:-1],
        "half the rows": lambda: array[: len(array) // 2],
        "every row twice": lambda: np.concatenate([array, array]),
        "upside down": lambda: array[::-1],
    }
    how = rng.choice(list(rows))
    return rows[how](), how


def _other_values(array: np.ndarray, rng: Random) -> tuple[np.ndarray, str]:
    """A number that does not belong there, in one place, in a row, or everywhere."""
    numbers = (-1, 10, 11, 100, 255, 2**31, 2**63 - 1, float("nan"), float("inf"), -1e300, 1e300, 0.5, 1e-300)
    number, share = rng.choice(numbers), rng.choice((0.0, 0.1, 1.0))
    if array.dtype.kind in "iu" and not rng.randrange(3):
        array = array.astype(np.float64)
    damaged = np.array(array)
    chosen = np.random.default_rng(rng.randrange(2**32)).random(damaged.shape) <= share
    if damaged.size:
        chosen.flat[rng.randrange(damaged.size)] = True
    try:
        with np.errstate(all="ignore"):
            damaged[chosen] = np.array(number).astype(damaged.dtype)
    except (TypeError, ValueError):
        return damaged, "nothing"
    return damaged, f"{number} in {chosen.sum():,} places"


# Tables of text -----------------------------------------------------------------------------------------


def of_csv(content: str, rng: Random, separator: str = ",") -> tuple[str, str]:
    """A table, changed in one cell, row or column, or in how it is written."""
    lines = content.splitlines() or [""]
    row = rng.randrange(len(lines))
    cells = lines[row].split(separator)
    column = rng.randrange(len(cells))
    match rng.choice(("cell", "cell", "cell", "row", "column", "head", "half", "writing", "many", "last")):
        case "cell":
            cells[column] = str(rng.choice((odd_number(rng), odd_number(rng), rng.choice(TEXTS))))
            how = f"cell {row}, {column} = {cells[column][:40]!r}"
            return "\n".join([*lines[:row], separator.join(cells), *lines[row + 1 :]]) + "\n", how
        case "row":
            others = rng.choice(
                (lines[:row] + lines[row + 1 :], [*lines, lines[row]], lines[::-1], lines[:1], [""])
            )
            return "\n".join(others) + "\n", f"{len(others)} of {len(lines)} rows, perhaps in another order"
        case "column":
            split = [line.split(separator) for line in lines]
            kept = [separator.join(cells[:column] + cells[column + 1 :]) for cells in split]
            return "\n".join(kept) + "\n", f"without column {column}"
        case "head":
            return "\n".join(lines[1:]) + "\n", "without the first row"
        case "half":
            return content[: rng.randrange(len(content) + 1)], "cut off somewhere"
        case "last":
            return content.rstrip("\n")[: -rng.choice((1, 3, 8))], "the last row cut short"
        case "many":
            times = min(100_000, _READ_MAX // (len(lines[row]) + 1))
            return content + (lines[row] + "\n") * times, f"row {row} {times:,} times more"
    ways: dict[str, Callable[[str], str]] = {
        "semicolons": lambda text: text.replace(separator, ";"),
        "tabs": lambda text: text.replace(separator, "\t"),
        "CRLF": lambda text: text.replace("\n", "\r\n"),
        "CR": lambda text: text.replace("\n", "\r"),
        "a byte order mark": lambda text: "\ufeff" + text,
        "an open quote": lambda text: text[:-5] + '"' + text[-5:],
        "NUL": lambda text: text[:20] + "\0" + text[20:],
        "decimal commas": lambda text: text.replace(".", ","),
        "empty lines": lambda text: text.replace("\n", "\n\n"),
        "a long cell": lambda text: text + "9" * 200_000,
    }
    how = rng.choice(list(ways))
    return ways[how](content), how


# Files --------------------------------------------------------------------------------------------------


def of_file(path: Path, rng: Random) -> str:
    """Replace a file, or a folder, by something that is none, or none that can be read."""
    place = rng.choice(("gone", "folder", "pipe", "loop", "dangling", "endless", "locked", "broken", "large"))
    if place == "locked":
        if os.geteuid() == 0:
            place = "gone"  # who may read everything can't be locked out
        else:
            path.chmod(0)
            return f"{path.name} may not be read"
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    makers: dict[str, Callable[[Path], Any]] = {
        "gone": lambda path: None,
        "folder": lambda path: path.mkdir(),
        "pipe": os.mkfifo,
        "loop": lambda path: path.symlink_to(path.name),
        "dangling": lambda path: path.symlink_to("nowhere"),
        "endless": lambda path: path.symlink_to("/dev/zero"),
        "broken": lambda path: path.write_bytes(rng.randbytes(500)),
        "large": _sparse,
    }
    makers[place](path)
    return f"{path.name}: {place}"


def _sparse(path: Path) -> None:
    """A file of 100 GB that takes no room."""
    with path.open("wb") as file:
        os.truncate(file.fileno(), 100_000_000_000)
