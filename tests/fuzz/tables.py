"""Changes of nested tables, as TOML and JSON files hold them; a place is a path of keys and list indices."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from tests.fuzz.values import near, odd_key, odd_value

Place = tuple[str | int, ...]


def places(table: Any, above: Place = ()) -> Iterator[Place]:
    """Every place in a table, tables and lists before what they hold."""
    items: Any = ()
    if isinstance(table, dict):
        items = table.items()
    elif isinstance(table, list):
        items = enumerate(table[:5])
    for key, value in items:
        yield (*above, key)
        yield from places(value, (*above, key))


def get(table: Any, place: Place) -> Any:
    """What stands there; LookupError where nothing does."""
    for key in place:
        if not isinstance(table, dict if isinstance(key, str) else list):
            raise KeyError(key)
        table = table[key]  # type: ignore[index]
    return table


def find(table: Any, place: Sequence[str | int]) -> Any:
    """What stands there; None where nothing does."""
    return get(table, tuple(place)) if has(table, tuple(place)) else None


def has(table: Any, place: Place) -> bool:
    """Whether anything stands there."""
    try:
        get(table, place)
    except LookupError:
        return False
    return True


def put(table: Any, place: Place, value: Any) -> bool:
    """Set a place or append to a list, with the tables above made as needed; whether that was possible."""
    *above, last = place
    for key in above:
        if isinstance(table, dict) and isinstance(key, str):
            table = table.setdefault(key, {})
        elif isinstance(table, list) and isinstance(key, int) and key < len(table):
            table = table[key]
        else:
            return False
    if isinstance(table, list) and last == len(table):
        table.append(value)
        return True
    fits = isinstance(last, str) if isinstance(table, dict) else has(table, (last,))
    if fits:
        table[last] = value
    return fits


def words(place: Place) -> str:
    """The place as a scenario's dotted key, shortened."""
    text = ".".join(str(key) for key in place)
    return text if len(text) <= 60 else f"{text[:57]}..."


def shown(value: Any) -> str:
    """A value, shortened to one line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def change(table: dict[str, Any], rng: Random) -> str:
    """Spoil one place of a table, and say how."""
    found = list(places(table))
    if not found:
        return "nothing is left to change"
    place = rng.choice(found)
    how = rng.choice((_odd, _odd, _near, _near, _near, _delete, _rename, _swap, _copy, _into_list))
    return how(table, place, rng)


def _odd(table: dict[str, Any], place: Place, rng: Random) -> str:
    value = odd_value(rng)
    put(table, place, value)
    return f"{words(place)} = {shown(value)}"


def _near(table: dict[str, Any], place: Place, rng: Random) -> str:
    value = near(get(table, place), rng)
    put(table, place, value)
    return f"{words(place)} = {shown(value)}"


def _delete(table: dict[str, Any], place: Place, rng: Random) -> str:
    del get(table, place[:-1])[place[-1]]
    return f"{words(place)} deleted"


def _rename(table: dict[str, Any], place: Place, rng: Random) -> str:
    owner, key = get(table, place[:-1]), place[-1]
    if not isinstance(owner, dict):
        return _odd(table, place, rng)
    choices: list[Callable[[], str]] = [
        lambda: f"{key}s",
        lambda: str(key)[:-1],
        lambda: str(key).upper(),
        lambda: odd_key(rng),
    ]
    new = rng.choice(choices)()
    owner[new] = owner.pop(key)
    return f"{words(place)} renamed to {shown(new)}"


def _swap(table: dict[str, Any], place: Place, rng: Random) -> str:
    other = rng.choice(list(places(table)))
    inside = other[: len(place)] == place or place[: len(other)] == other
    if inside:
        return _delete(table, place, rng)
    first, second = get(table, place), get(table, other)
    put(table, place, second)
    put(table, other, first)
    return f"{words(place)} and {words(other)} swapped"


def _copy(table: dict[str, Any], place: Place, rng: Random) -> str:
    other = rng.choice(list(places(table)))
    put(table, place, copy.deepcopy(get(table, other)))
    return f"{words(place)} = a copy of {words(other)}"


def _into_list(table: dict[str, Any], place: Place, rng: Random) -> str:
    value = get(table, place)
    put(table, place, [value, copy.deepcopy(value)])
    return f"{words(place)} twice, in a list"
