"""Lists and groups of clients and servers, as written in scenario files."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from actors.settings.base import SettingError

Member = int | Literal["servers"]
"""Number of a client, or all servers."""

_MEMBERS = 'a list of client numbers, in which "servers" stands for all servers, if any'
_GROUPS = f'a list of groups that share no member, each {_MEMBERS}; or "clusters"'


def _is_members(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(member == "servers" or (type(member) is int and member >= 0) for member in value)
    )


def _members(value: Any) -> Any:
    if not _is_members(value):
        raise ValueError(f"must be {_MEMBERS}")
    return tuple(value)


def _groups(value: Any) -> Any:
    if value == "clusters":
        return value
    if not isinstance(value, list | tuple) or not value or not all(map(_is_members, value)):
        raise ValueError(f"must be {_GROUPS}")
    members = [member for group in value for member in group]
    if len(set(members)) < len(members):
        raise ValueError(f"must be {_GROUPS}")
    return tuple(map(tuple, value))


_MEMBERS_SCHEMA = {
    "type": "array",
    "minItems": 1,
    "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"const": "servers"}]},
}

Members = Annotated[
    tuple[Member, ...], BeforeValidator(_members), WithJsonSchema({"x-allowed": _MEMBERS} | _MEMBERS_SCHEMA)
]
"""Numbers of clients, and perhaps "servers"."""

Groups = Annotated[
    tuple[tuple[Member, ...], ...] | Literal["clusters"],
    BeforeValidator(_groups),
    WithJsonSchema(
        {
            "x-allowed": _GROUPS,
            "anyOf": [{"const": "clusters"}, {"type": "array", "minItems": 1, "items": _MEMBERS_SCHEMA}],
        }
    ),
]
"""Groups of members, or "clusters" for the true clusters of the data, each a group."""


def is_one_client(members: Members) -> bool:
    """Return True if the members are a single client; False for "servers", which may be several."""
    return len(set(members)) == 1 and members[0] != "servers"


def client_numbers(members: Members) -> tuple[int, ...]:
    """Return the numbers of the clients among members."""
    return tuple([member for member in members if member != "servers"])


def cluster_misfits(
    key: str, count: int | None, sizes: Sequence[int] | None, clients: int
) -> Iterator[SettingError]:
    """Yield an error if the number of clusters (at `key`) or their sizes do not fit `clients` clients."""
    if count is not None and count > clients:
        problem = f"more clusters than clients; must be at most clients.count = {clients}"
        yield SettingError(key, count, problem)
    if sizes is not None and sum(sizes) != clients:
        problem = f"the sizes must add up to clients.count = {clients}, not {sum(sizes)}"
        yield SettingError(".".join((*key.split(".")[:-1], "sizes")), sizes, problem)
