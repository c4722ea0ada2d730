"""Table with a value for each of a client's peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from protocols.framework.component import Component, weak_callback

if TYPE_CHECKING:
    from protocols.framework.client import Client

V = TypeVar("V")


class PerPeer(Component, dict[str, V]):
    """Dict by peer that drops a peer when it leaves the client's peers; a peer that returns gets a new entry.

    Entries are in the order of insertion. The table is kept while the client itself is away. A peer that a
    sampled view only exchanges for another stays in the table, because it may return with the next shuffle.
    Change the table, but do not assign another dict to its field: use `replace` to exchange the contents.

    >>> asked = PerPeer(client, int)  # in setup(); use a dataclass with defaults for more than a number
    >>> asked["client-1"] += 1
    >>> asked
    {'client-1': 1}

    make: creates the value for a peer that is not in the table when you read `table[peer]`, as in a
    `defaultdict`; without it, KeyError. on_departure(peer, value): called when a peer leaves, with None for a
    peer that is not in the table; its result becomes the peer's value, or None removes the peer.
    """

    def __init__(
        self,
        client: Client,
        make: Callable[[], V] | None = None,
        *,
        on_departure: Callable[[str, V | None], V | None] | None = None,
    ) -> None:
        super().__init__(client)
        self._make = weak_callback(make) if make else None
        self._on_departure = weak_callback(on_departure) if on_departure else None

    def __missing__(self, peer: str) -> V:
        if self._make is None:
            raise KeyError(peer)
        self[peer] = value = self._make()
        return value

    def replace(self, found: Mapping[str, V] | Iterable[tuple[str, V]]) -> None:
        """Replace the contents by these entries."""
        found = dict(found)
        self.clear()
        self.update(found)

    def peer_changed(self, peer: str, up: bool) -> None:
        if up:
            return
        kept = self._on_departure(peer, self.get(peer)) if self._on_departure else None
        if kept is None:
            self.pop(peer, None)
        else:
            self[peer] = kept
