"""Places in the contents of a scenario file, written as keys with dots: "network.class.0.latency"."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any


def places(contents: Any, pattern: str) -> Iterator[str]:
    """The places that are there and match; "*" matches each number of a list."""
    first, _, rest = pattern.partition(".")
    for part in map(str, range(len(contents))) if first == "*" and isinstance(contents, list) else [first]:
        if (value := _step(contents, part)) is not None:
            yield from (f"{part}.{inner}" for inner in places(value, rest)) if rest else [part]


def value_at(contents: Any, place: str) -> Any:
    """What stands at a place; None where there is none."""
    for part in place.split("."):
        contents = _step(contents, part)
    return contents


def put(contents: Any, place: str, value: Any) -> None:
    """Have a place, around which there are tables and lists already, say `value`."""
    parent, _, last = place.rpartition(".")
    table = value_at(contents, parent) if parent else contents
    table[last if isinstance(table, MutableMapping) else int(last)] = value


def replaced(contents: Any, place: str, value: Any) -> Any:
    """The same contents but for a place; what is around it is copied, all else is shared."""
    first, _, rest = place.partition(".")
    inner = replaced(_step(contents, first), rest, value) if rest else value
    copy = contents.copy()
    put(copy, first, inner)
    return copy


def _step(contents: Any, part: str) -> Any:
    """What a table or a list has under a key or a number; None for nothing."""
    if isinstance(contents, Mapping):
        return contents.get(part)
    if isinstance(contents, list) and part.isdecimal() and int(part) < len(contents):
        return contents[int(part)]
    return None
