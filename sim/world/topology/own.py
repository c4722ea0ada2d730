"""A topology from a function of the user's own, perhaps directed and weighted."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.kernel.random import stream
from sim.world.plugins import WorldPlugin
from sim.world.topology.kinds import Adjacency, TopologyKind

_MORE_THAN_ALL = 1e-6  # by so much rounding may have a client's weights add up to more than 1
_LINK = "a link (sender, receiver), or (sender, receiver, weight)"

Links = dict[tuple[int, int], float | None]
"""The weight of each link (sender, receiver), or None."""


class OwnTopology(WorldPlugin, TopologyKind):
    """A function of your own says who may talk to whom.

    It gives links (i, j) between clients, or (i, j, weight), one after the other; or a square array, whose
    row i has the weights that client i gives to the models of the others, 0 where there is no link (of truth
    values: True where there is one, without weights). A weight is what the receiver gives to the sender's
    model when it mixes; what is left of 1 is for its own, and a protocol reads them as `mixing_weights`. The
    function is given what it takes of `rng` (a numpy generator) and `clients` (how many there are).
    """

    provided = ("rng", "clients")

    directed: bool = False
    """Whether link (i, j) has i send to j only; else both may send, and a weight is for both."""

    def adjacency(self, n: int, seed: int) -> Adjacency:
        links = self.same_again(lambda: self._links(n, seed), lambda: f"for {n} clients")
        self._require_weights(n, links)
        receivers: list[list[int]] = [[] for _ in range(n)]
        senders: list[list[int]] = [[] for _ in range(n)]
        weights: list[dict[int, float]] = [{} for _ in range(n)]
        for (sender, receiver), weight in sorted(links.items()):
            receivers[sender].append(receiver)
            senders[receiver].append(sender)
            if weight is not None:
                weights[receiver][sender] = weight
        weighted = any(weights)
        return Adjacency(receivers, senders if self.directed else receivers, weights if weighted else None)

    def _links(self, n: int, seed: int) -> Links:
        found = self.asked(_nowhere, rng=stream(seed, "own topology"), clients=n)
        links: Links = {}
        if isinstance(found, np.ndarray):
            self._add_array(links, found, n)
            return links
        most = 2 * n * n  # each link in either direction, and each of them twice
        for place, item in enumerate(self.items(found, _nowhere)):
            if place == most:
                raise self.refusal(
                    f"gave more than {most:,} links for {n} clients; must be fewer (do they end?)"
                )
            values = self.row(item, _LINK, _nowhere, (2, 3))
            i, j = [self._client(value, item, n) for value in values[:2]]
            if i == j:
                raise self.refusal(f"gave {item!r:.60}; a client has no link to itself")
            weight = None
            if len(values) == 3:
                weight = self.number(values[2], 0.0, 1.0, "a weight", partial("in {!r:.60}".format, item))
            for link in [(i, j)] if self.directed else [(i, j), (j, i)]:
                if links.setdefault(link, weight) != weight:
                    raise self.refusal(f"gave {item!r:.60}, and the same link before with another weight")
        return links

    def _add_array(self, links: Links, array: NDArray[Any], n: int) -> None:
        if array.shape != (n, n) or array.dtype.kind not in "biuf":
            what = f"an array of {array.dtype} with the shape {array.shape}"
            raise self.refusal(f"gave {what}; must be numbers with the shape {(n, n)}")
        for i, j in np.argwhere(array != 0).tolist():
            if i == j:
                self._require_whole_row(array, i)
                continue
            if not self.directed and array[j, i] == 0:
                raise self.refusal(
                    f"gave an array with a weight in row {i}, column {j}, and none in row {j}, column {i}: "
                    "links that go one way need directed = true"
                )
            weight = None
            if array.dtype.kind != "b":
                about = partial("in row {}, column {}".format, i, j)
                weight = self.number(array[i, j].item(), 0.0, 1.0, "a weight", about)
            links[j, i] = weight  # row i is of what client i hears

    def _require_whole_row(self, array: NDArray[Any], row: int) -> None:
        """A row with its diagonal must add up to 1."""
        total = float(array[row].sum())
        if array.dtype.kind != "b" and not abs(total - 1) <= _MORE_THAN_ALL:
            raise self.refusal(
                f"gave an array whose row {row} adds up to {total:g} with its diagonal; must be 1, or leave "
                "the diagonal at 0"
            )

    def _client(self, value: Any, item: Any, n: int) -> int:
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not is_whole or not 0 <= value < n:
            raise self.refusal(f"gave {item!r:.60}; clients are the whole numbers from 0 to {n - 1}")
        return int(value)

    def _require_weights(self, n: int, links: Links) -> None:
        """All links have a weight or none has, and the weights of a receiver add up to at most 1."""
        if not links and n > 1:
            raise self.refusal("gave no link, so that all clients would be alone")
        given = [0.0] * n
        for (_, receiver), weight in links.items():
            given[receiver] += weight or 0.0
        weights = [weight for weight in links.values() if weight is not None]
        if weights and len(weights) < len(links):
            raise self.refusal("gave some links with a weight and some without; must be all or none")
        most = max(range(n), key=given.__getitem__)
        if given[most] > 1 + _MORE_THAN_ALL:
            raise self.refusal(
                f"gave weights with which client {most} mixes others' models that add up to "
                f"{given[most]:g}; must be at most 1, what is left is for its own model"
            )


def _nowhere() -> str:
    return "as the topology"
