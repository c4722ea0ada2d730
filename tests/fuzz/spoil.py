"""Damage to bytes, arrays, tables of text, nested tables and files, whatever they mean, told in words."""

import copy
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.values import NUMBERS, TEXTS, near, odd_key, odd_value

Place = tuple[str | int, ...]
"""Where something stands in a nested table: keys, and numbers of list items."""


def shown(value: Any) -> str:
    """A value, shortened to one line."""
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def words(place: Place) -> str:
    """The place as a scenario's dotted key, shortened."""
    return shown(".".join(map(str, place)))


# --- bytes, arrays, texts -----------------------------------------------------------------------------------


def damaged_bytes(content: bytes, rng: Random) -> tuple[bytes, str]:
    """Some bytes cut off, changed or removed, as by a download that broke off; or something else."""
    place, length = rng.randrange(len(content) + 1), rng.choice((1, 8, 100))
    found: dict[str, bytes] = {
        f"cut after {place} bytes": content[:place],
        f"{length} bytes overwritten at {place}": content[:place]
        + rng.randbytes(length)
        + content[place + length :],
        f"{length} bytes removed at {place}": content[:place] + content[place + length :],
        "empty": b"",
        "everything twice": content * 2,
        "nothing but junk": rng.randbytes(rng.choice((1, 10, 1000))),
    }
    how = rng.choice(list(found))
    return found[how], how


def damaged_array(array: np.ndarray, rng: Random) -> tuple[np.ndarray, str]:
    """An array with another type, shape or rows, or with numbers that do not belong there."""
    rows = np.atleast_1d(array)
    match rng.choice(("values", "values", "type", "shape", "shape")):
        case "values":
            number = rng.choice((-1, 10, 100, 255, 2**31, float("nan"), float("inf"), 1e300, 0.5))
            changed = array.astype(np.float64) if rng.randrange(2) else np.array(array)
            chosen = np.random.default_rng(rng.randrange(2**32)).random(changed.shape)
            with np.errstate(all="ignore"):
                changed[chosen <= rng.choice((0.1, 1.0))] = np.array(number).astype(changed.dtype)
            return changed, f"{number} in many places"
        case "type":
            kind = rng.choice(("f8", "f2", "c16", "?", "i1", "i8", "u8", "U3", "O", "M8[s]"))
            with np.errstate(all="ignore"):
                return array.astype(kind), f"as {kind}"
    shapes: dict[str, np.ndarray] = {
        "flat": array.reshape(-1),
        "transposed": array.T,
        "an axis more": array[..., np.newaxis],
        "a column less": rows[..., :-1],
        "channels last": np.moveaxis(array, 1, -1) if array.ndim > 1 else array,
        "no rows": rows[:0],
        "a row less": rows[:-1],
        "every row twice": np.concatenate([rows, rows]),
    }
    how = rng.choice(list(shapes))
    return shapes[how], how


def damaged_csv(content: str, rng: Random, separator: str = ",") -> tuple[str, str]:
    """A table of text, changed in one cell, row or column, or in how it is written."""
    lines = content.splitlines() or [""]
    row = rng.randrange(len(lines))
    cells = lines[row].split(separator)
    column = rng.randrange(len(cells))
    if rng.random() < 0.4:
        cells[column] = str(rng.choice((rng.choice(NUMBERS), rng.choice(TEXTS))))
        changed = [*lines[:row], separator.join(cells), *lines[row + 1 :]]
        return "\n".join(changed) + "\n", f"cell {row}, {column} = {cells[column][:40]!r}"
    split = [line.split(separator) for line in lines]
    found = {
        f"without row {row}": "\n".join(lines[:row] + lines[row + 1 :]) + "\n",
        f"row {row} twice": "\n".join([*lines, lines[row]]) + "\n",
        "upside down": "\n".join(lines[::-1]) + "\n",
        "the first row only": lines[0] + "\n",
        f"without column {column}": "".join(
            separator.join(each[:column] + each[column + 1 :]) + "\n" for each in split
        ),
        "the last row cut short": content.rstrip("\n")[: -rng.choice((1, 3, 8))],
        "semicolons": content.replace(separator, ";"),
        "CRLF": content.replace("\n", "\r\n"),
        "a byte order mark": "\ufeff" + content,
        "an open quote": content[:-5] + '"' + content[-5:],
        "decimal commas": content.replace(".", ","),
        "empty lines": content.replace("\n", "\n\n"),
    }
    how = rng.choice(list(found))
    return found[how], how


# --- files --------------------------------------------------------------------------------------------------


def replace_file(path: Path, rng: Random, *, special: bool = False) -> str:
    """Put something into the place of a file, or a folder, that is no file, or none of its kind.

    special: also a pipe, from which nothing comes, or a file as large as a disk that holds nothing.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    makers: dict[str, Callable[[], Any]] = {
        "gone": lambda: None,
        "a folder": path.mkdir,
        "a dangling link": lambda: path.symlink_to("nowhere"),
        "junk": lambda: path.write_bytes(rng.randbytes(500)),
    }
    if special:
        makers |= {"a pipe": lambda: os.mkfifo(path), "a terabyte": lambda: _blown_up(path)}
    how = rng.choice(list(makers))
    makers[how]()
    return f"{path.name}: {how}"


def _blown_up(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


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
    elif isinstance(table, dict if isinstance(last, str) else list):
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
    match rng.choice(("odd", "odd", "near", "near", "near", "delete", "rename", "copy", "list")):
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
        case "copy":
            put(table, place, copy.deepcopy(find(table, other)))
            return f"{words(place)} = a copy of {words(other)}"
        case "list":
            return put(table, place, [value, copy.deepcopy(value)])
    return put(table, place, odd_value(rng))
