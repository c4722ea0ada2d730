"""Paths of keys in the contents of a scenario file, with dots: "network.class.0.latency"."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any


def matching_paths(contents: Any, pattern: str) -> Iterator[str]:
    """Return the paths in the contents that match a pattern; "*" stands for each index of a list."""
    first, _, later = pattern.partition(".")
    for part in map(str, range(len(contents))) if first == "*" and isinstance(contents, list) else [first]:
        if (value := item_at(contents, part)) is not None:
            yield from (f"{part}.{inner}" for inner in matching_paths(value, later)) if later else [part]


def value_at(contents: Any, path: str) -> Any:
    """Return the value at a path, or None."""
    for part in path.split("."):
        contents = item_at(contents, part)
    return contents


def set_value_at(contents: Any, path: str, value: Any) -> None:
    """Set the value at a path with an existing parent."""
    parent, _, last = path.rpartition(".")
    table = value_at(contents, parent) if parent else contents
    table[last if isinstance(table, MutableMapping) else int(last)] = value


def with_value_at(contents: Any, path: str, value: Any) -> Any:
    """Return a copy of the contents with another value at a path; parts off the path are shared."""
    first, _, later = path.partition(".")
    inner = with_value_at(item_at(contents, first), later, value) if later else value
    copy = contents.copy()
    set_value_at(copy, first, inner)
    return copy


def item_at(contents: Any, part: str) -> Any:
    """Return the item of a table or list at one key or index, or None."""
    if isinstance(contents, Mapping):
        return contents.get(part)
    if isinstance(contents, list) and part.isdecimal() and int(part) < len(contents):
        return contents[int(part)]
    return None
