"""Damage to bytes, arrays, texts, nested tables and files, whatever they mean, told in words."""

from __future__ import annotations

import copy
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.values import NUMBERS, TEXTS, near, odd_key, odd_value

Place = tuple[str | int, ...]
"""Where something stands in a nested table: keys, and numbers of list items."""
_READ_MAX = 2**26


def shown(value: Any) -> str:
    """A value, shortened to one line."""
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def words(place: Place) -> str:
    """The place as a scenario's dotted key, shortened."""
    return shown(".".join(map(str, place)))


# --- bytes, arrays, texts -----------------------------------------------------------------------------------


def damaged_bytes(content: bytes, rng: Random) -> tuple[bytes, str]:
    """Some bytes cut off, changed, inserted or removed; or something else altogether."""
    place, length = rng.randrange(len(content) + 1), rng.choice((1, 2, 8, 100))
    flipped = bytearray(content)
    for _ in range(length if content else 0):
        flipped[rng.randrange(len(flipped))] = rng.randrange(256)
    found: dict[str, bytes] = {
        f"cut after {place} bytes": content[:place],
        f"{length} bytes cut off": content[:-length],
        f"{length} bytes overwritten": bytes(flipped),
        f"{length} bytes inserted at {place}": content[:place] + rng.randbytes(length) + content[place:],
        f"{length} bytes removed at {place}": content[:place] + content[place + length :],
        "empty": b"",
        "everything twice": content * 2,
        "all zero": bytes(len(content)),
        "nothing but junk": rng.randbytes(rng.choice((1, 10, 1000))),
        f"the parts before and after {place} swapped": content[place:] + content[:place],
    }
    how = rng.choice(list(found))
    return found[how], how


def damaged_array(array: np.ndarray, rng: Random) -> tuple[np.ndarray, str]:
    """An array with another type, shape or rows, or with a number that does not belong there."""
    if rng.random() < 0.4:
        return _other_values(array, rng)
    kinds = ("f8", "f4", "f2", "c16", "?", "i1", "i8", "u8", ">i4", "U3", "S2", "O", "M8[s]", "V4", "i4,f8")
    if rng.random() < 0.33:
        kind = rng.choice(kinds)
        try:
            with np.errstate(all="ignore"):
                return array.astype(kind), f"as {kind}"
        except (TypeError, ValueError):
            return np.zeros(array.shape, kind), f"zeros of {kind}"
    rows = np.atleast_1d(array)
    shapes: dict[str, np.ndarray] = {
        "flat": array.reshape(-1),
        "transposed": array.T,
        "an axis more": array[..., np.newaxis],
        "an axis more in front": array[np.newaxis],
        "the first only": rows[0] if len(rows) else rows,
        "a column less": rows[..., :-1],
        "channels last": np.moveaxis(array, 1, -1) if array.ndim > 1 else array,
        "a single number": np.array(7, array.dtype),
        "without columns": rows[..., :0],
        "no rows": rows[:0],
        "a row less": rows[:-1],
        "half the rows": rows[: len(rows) // 2],
        "every row twice": np.concatenate([rows, rows]),
        "upside down": rows[::-1],
    }
    how = rng.choice(list(shapes))
    return shapes[how], how


def _other_values(array: np.ndarray, rng: Random) -> tuple[np.ndarray, str]:
    """A number that does not belong there, in one place, in a tenth, or everywhere."""
    numbers = (-1, 10, 11, 100, 255, 2**31, 2**63 - 1, float("nan"), float("inf"), -1e300, 1e300, 0.5, 1e-300)
    number, share = rng.choice(numbers), rng.choice((0.0, 0.1, 1.0))
    if array.dtype.kind in "iu" and not rng.randrange(3):
        array = array.astype(np.float64)
    changed = np.array(array)
    chosen = np.random.default_rng(rng.randrange(2**32)).random(changed.shape) <= share
    if changed.size:
        chosen.flat[rng.randrange(changed.size)] = True
    try:
        with np.errstate(all="ignore"):
            changed[chosen] = np.array(number).astype(changed.dtype)
    except (TypeError, ValueError):
        return changed, "nothing"
    return changed, f"{number} in {chosen.sum():,} places"


def damaged_csv(content: str, rng: Random, separator: str = ",") -> tuple[str, str]:
    """A table of text, changed in one cell, row or column, or in how it is written."""
    lines = content.splitlines() or [""]
    row = rng.randrange(len(lines))
    cells = lines[row].split(separator)
    column = rng.randrange(len(cells))
    if rng.random() < 0.4:
        cells[column] = str(rng.choice((rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(TEXTS))))
        changed = [*lines[:row], separator.join(cells), *lines[row + 1 :]]
        return "\n".join(changed) + "\n", f"cell {row}, {column} = {cells[column][:40]!r}"
    split = [line.split(separator) for line in lines]
    times = min(100_000, _READ_MAX // (len(lines[row]) + 1))
    found: dict[str, Callable[[], str]] = {
        f"without row {row}": lambda: "\n".join(lines[:row] + lines[row + 1 :]) + "\n",
        f"row {row} twice": lambda: "\n".join([*lines, lines[row]]) + "\n",
        "upside down": lambda: "\n".join(lines[::-1]) + "\n",
        "the first row only": lambda: lines[0] + "\n",
        "without the first row": lambda: "\n".join(lines[1:]) + "\n",
        f"without column {column}": lambda: "".join(
            separator.join(each[:column] + each[column + 1 :]) + "\n" for each in split
        ),
        "cut off somewhere": lambda: content[: rng.randrange(len(content) + 1)],
        "the last row cut short": lambda: content.rstrip("\n")[: -rng.choice((1, 3, 8))],
        f"row {row} {times:,} times more": lambda: content + (lines[row] + "\n") * times,
        "semicolons": lambda: content.replace(separator, ";"),
        "tabs": lambda: content.replace(separator, "\t"),
        "CRLF": lambda: content.replace("\n", "\r\n"),
        "CR": lambda: content.replace("\n", "\r"),
        "a byte order mark": lambda: "\ufeff" + content,
        "an open quote": lambda: content[:-5] + '"' + content[-5:],
        "NUL": lambda: content[:20] + "\0" + content[20:],
        "decimal commas": lambda: content.replace(".", ","),
        "empty lines": lambda: content.replace("\n", "\n\n"),
        "a long cell": lambda: content + "9" * 200_000,
    }
    how = rng.choice(list(found))
    return found[how](), how


_CODE_WORDS = ("rng", "labels", "clients", "range", "len", "x", "samples", "places", "0", "int", "return")
_FUNCTIONS = ("sorted", "str", "exit", "clients", "x", "print")
_CODE_OTHERS = ("None", "-1", "nan", "[]", "exit()", "1e9", "'a'", "clients", "yield", "10**9", "x")


def damaged_code(content: str, rng: Random) -> tuple[str, str]:
    """Python in which one word is another."""
    word = rng.choice(_CODE_WORDS)
    called = re.search(rf"\b{word}\(", content) is not None
    other = rng.choice(_FUNCTIONS if called else _CODE_OTHERS)  # of numbers that are called Python warns
    return re.sub(rf"\b{word}\b", other, content, count=1), f"{other} for the first {word}"


def damaged_json(content: str, rng: Random) -> tuple[str, str]:
    """JSON with something in it that does not belong there."""
    place, odd = (
        rng.randrange(len(content) + 1),
        rng.choice(("-1", "[", "]", "1e9", "99", ",", '"a"', "null")),
    )
    return content[:place] + odd + content[place + rng.randrange(2) :], f"{odd} at {place}"


# --- files --------------------------------------------------------------------------------------------------


def can_be_read(path: Path) -> bool:
    """Whether another change left a regular file there, of a size that a reader survives."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= _READ_MAX


def replace_file(path: Path, rng: Random) -> str:
    """Put something into the place of a file, or a folder, that is no file, or none that can be read."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    makers: dict[str, Callable[[], Any]] = {
        "gone": lambda: None,
        "a folder": path.mkdir,
        "a pipe": lambda: os.mkfifo(path),
        "a loop": lambda: path.symlink_to(path.name),
        "a dangling link": lambda: path.symlink_to("nowhere"),
        "endless": lambda: path.symlink_to("/dev/zero"),
        "junk": lambda: path.write_bytes(rng.randbytes(500)),
        "100 GB that take no room": lambda: (path.touch(), os.truncate(path, 100_000_000_000)),
    }
    how = rng.choice(list(makers))
    makers[how]()
    return f"{path.name}: {how}"


# --- nested tables ------------------------------------------------------------------------------------------


def places(table: Any, above: Place = ()) -> Iterator[Place]:
    """Every place in a table, tables and lists before what they hold; of lists the first five items."""
    items: Any = table.items() if isinstance(table, dict) else ()
    if isinstance(table, list):
        items = enumerate(table[:5])
    for key, value in items:
        yield (*above, key)
        yield from places(value, (*above, key))


def find(table: Any, place: Place) -> Any:
    """What stands there; None where nothing does."""
    for key in place:
        if not isinstance(table, dict if isinstance(key, str) else list):
            return None
        try:
            table = table[key]  # type: ignore[index]
        except LookupError:
            return None
    return table


def put(table: Any, place: Place, value: Any) -> str:
    """Set a place or append to a list, with the tables above made as needed, and say so."""
    *above, last = place
    for key in above:
        if isinstance(table, dict) and isinstance(key, str):
            table = table.setdefault(key, {})
        elif isinstance(table, list) and isinstance(key, int) and key < len(table):
            table = table[key]
        else:
            return f"{words(place)} cannot be set"
    if isinstance(table, list) and last == len(table):
        table.append(value)
    elif (
        isinstance(last, str)
        if isinstance(table, dict)
        else isinstance(table, list) and last in range(len(table))
    ):
        table[last] = value
    else:
        return f"{words(place)} cannot be set"
    return f"{words(place)} = {shown(value)}"


def damaged_table(table: dict[str, Any], rng: Random) -> str:
    """Spoil one place of a nested table."""
    found = list(places(table))
    if not found:
        return "nothing is left to change"
    place, other = rng.choice(found), rng.choice(found)
    value, owner = find(table, place), find(table, place[:-1])
    match rng.choice(("odd", "odd", "near", "near", "near", "delete", "rename", "swap", "copy", "list")):
        case "near":
            return put(table, place, near(value, rng))
        case "delete":
            del owner[place[-1]]
            return f"{words(place)} deleted"
        case "rename" if isinstance(owner, dict):
            key = str(place[-1])
            new = rng.choice((f"{key}s", key[:-1], key.upper(), odd_key(rng)))
            owner[new] = owner.pop(place[-1])
            return f"{words(place)} renamed to {shown(new)}"
        case "swap" if other[: len(place)] != place and place[: len(other)] != other:
            put(table, place, find(table, other))
            put(table, other, value)
            return f"{words(place)} and {words(other)} swapped"
        case "copy":
            put(table, place, copy.deepcopy(find(table, other)))
            return f"{words(place)} = a copy of {words(other)}"
        case "list":
            return put(table, place, [value, copy.deepcopy(value)])
    return put(table, place, odd_value(rng))
