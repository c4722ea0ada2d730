"""Paths of keys in the contents of a scenario file, written with dots: "network.class.0.latency"."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any


def places(contents: Any, pattern: str) -> Iterator[str]:
    """The paths that exist in the contents and match a pattern; "*" stands for each index of a list."""
    first, _, rest = pattern.partition(".")
    for part in map(str, range(len(contents))) if first == "*" and isinstance(contents, list) else [first]:
        if (value := step(contents, part)) is not None:
            yield from (f"{part}.{inner}" for inner in places(value, rest)) if rest else [part]


def value_at(contents: Any, place: str) -> Any:
    """The value at a path; None where there is none."""
    for part in place.split("."):
        contents = step(contents, part)
    return contents


def put(contents: Any, place: str, value: Any) -> None:
    """Set the value at a path whose parent exists."""
    parent, _, last = place.rpartition(".")
    table = value_at(contents, parent) if parent else contents
    table[last if isinstance(table, MutableMapping) else int(last)] = value


def replaced(contents: Any, place: str, value: Any) -> Any:
    """A copy of the contents with another value at a path; what does not lie on the path is shared."""
    first, _, rest = place.partition(".")
    inner = replaced(step(contents, first), rest, value) if rest else value
    copy = contents.copy()
    put(copy, first, inner)
    return copy


def step(contents: Any, part: str) -> Any:
    """The item of a table or list at one key or index; None where there is none."""
    if isinstance(contents, Mapping):
        return contents.get(part)
    if isinstance(contents, list) and part.isdecimal() and int(part) < len(contents):
        return contents[int(part)]
    return None
