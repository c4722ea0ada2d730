"""A table of what a client keeps for each of its peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from protocols.framework.component import Component, weakly

if TYPE_CHECKING:
    from protocols.framework.client import Client

V = TypeVar("V")


class PerPeer(Component, dict[str, V]):
    """A dict by peer, from which whoever leaves the client's peers is taken out; who comes back begins anew.

    The order is that in which peers came into the table. It is kept while the client itself is away, and a
    peer that a sampled view merely exchanges for another stays in it: it may be back with the next shuffle.
    Change it, but assign no other dict to its field: `replace` exchanges the contents.

    >>> asked = PerPeer(client, int)  # in begin(); more than a number is a dataclass with defaults
    >>> asked["client-1"] += 1
    >>> asked
    {'client-1': 1}

    make: makes the value of a peer that is not in yet when `table[peer]` asks for it, as in a `defaultdict`;
    without it, KeyError. on_departure(peer, value): called when a peer leaves, with None for one that is not
    in the table; what it returns stays in the table, and for None the peer is taken out.
    """

    def __init__(
        self,
        client: Client,
        make: Callable[[], V] | None = None,
        *,
        on_departure: Callable[[str, V | None], V | None] | None = None,
    ) -> None:
        super().__init__(client)
        self._make = weakly(make) if make else None
        self._on_departure = weakly(on_departure) if on_departure else None

    def __missing__(self, peer: str) -> V:
        if self._make is None:
            raise KeyError(peer)
        self[peer] = value = self._make()
        return value

    def replace(self, found: Mapping[str, V] | Iterable[tuple[str, V]]) -> None:
        """From now on hold these, and nothing else."""
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
