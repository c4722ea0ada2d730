"""Service that gives contacts to clients that join or have an empty view."""

from collections.abc import Iterable, Sequence

import numpy as np

from sim.kernel.random import key, splitmix64_array


class BootstrapService:
    """Source of random contacts that are up, for clients that need contacts. Changes take effect immediately.

    For each client, keyed hashes put all others in a fixed order, and the first ones that are up are its
    contacts. A client that comes up or goes down therefore changes at most one contact of each other client.
    """

    def __init__(self, seed: int, names: Sequence[str], up: Iterable[str]) -> None:
        self._seed = seed
        self._names = names
        self._positions = {name: position for position, name in enumerate(names)}
        self._keys = np.array([key(seed, "contact", name) for name in names], dtype=np.uint64)
        self._up = np.zeros(len(names), dtype=bool)
        for name in up:
            self.record(name, up=True)

    def record(self, name: str, *, up: bool) -> None:
        """Record that a client is up or down."""
        self._up[self._positions[name]] = up

    def contacts(self, name: str, count: int) -> list[str]:
        """Return `count` other clients that are up now, or all others if there are fewer."""
        others = np.flatnonzero(self._up)
        others = others[others != self._positions[name]]
        own_key = np.array([key(self._seed, "contacts", name)], dtype=np.uint64)
        hashes = splitmix64_array(own_key, self._keys[others])
        first = np.argpartition(hashes, count)[:count] if count < len(hashes) else np.arange(len(hashes))
        first = first[np.argsort(hashes[first])]
        return [self._names[position] for position in others[first].tolist()]
