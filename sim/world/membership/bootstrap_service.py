"""The service that names contacts to clients that come, or know nobody."""

from collections.abc import Iterable, Sequence

import numpy as np

from sim.kernel.random import key, splitmix64_array


class BootstrapService:
    """Names random clients that are up to clients that need contacts. It knows at once who is up.

    For each client, keyed hashes put all others in an order, and the first ones that are up are its contacts.
    So one client more or less changes no other contacts.
    """

    def __init__(self, seed: int, names: Sequence[str], up: Iterable[str]) -> None:
        self._seed = seed
        self._names = names
        self._places = {name: place for place, name in enumerate(names)}
        self._keys = np.array([key(seed, "contact", name) for name in names], dtype=np.uint64)
        self._up = np.zeros(len(names), dtype=bool)
        for name in up:
            self.record(name, up=True)

    def record(self, name: str, *, up: bool) -> None:
        """A client has come or gone."""
        self._up[self._places[name]] = up

    def contacts(self, name: str, count: int) -> list[str]:
        """`count` clients that are up now, or all if there are fewer."""
        others = np.flatnonzero(self._up)
        others = others[others != self._places[name]]
        own_key = np.array([key(self._seed, "contacts", name)], dtype=np.uint64)
        hashes = splitmix64_array(own_key, self._keys[others])
        first = np.argpartition(hashes, count)[:count] if count < len(hashes) else np.arange(len(hashes))
        first = first[np.argsort(hashes[first])]
        return [self._names[place] for place in others[first].tolist()]
