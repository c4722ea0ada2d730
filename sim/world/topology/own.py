"""Topology from a user-defined function; it may be directed and weighted."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.kernel.random import stream
from sim.world.plugins import WorldPlugin
from sim.world.topology.kinds import Adjacency, TopologyKind

_MORE_THAN_ALL = 1e-6  # rounding of the sum of a client's weights
_LINK = "a link (sender, receiver), or (sender, receiver, weight)"

Links = dict[tuple[int, int], float | None]
"""Weight of each link (sender, receiver), or None."""


class OwnTopology(WorldPlugin, TopologyKind):
    """Your own function returns the links between clients.

    It returns links (i, j) between clients, or (i, j, weight), one at a time; or a square array. Row i
    of the array contains the weights that client i gives to the models of the others, and 0 where there is no
    link (or truth values: True where there is a link, without weights). A weight is the receiver's weight of
    the sender's model in mixing; the difference of their sum from 1 is the weight of the receiver's own
    model. A protocol reads the weights as `mixing_weights`. The function may have any of these parameters:
    `rng` (a numpy generator) and `clients` (the number of clients).
    """

    provided = ("rng", "clients")

    directed: bool = False
    """True: in link (i, j) only i sends to j. False: both may send, and a weight applies to both
    directions."""

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
        found = self.call_checked(_about_topology, rng=stream(seed, "own topology"), clients=n)
        links: Links = {}
        if isinstance(found, np.ndarray):
            self._add_array(links, found, n)
            return links
        most = 2 * n * n  # each link in both directions, each of them twice
        for index, item in enumerate(self.items(found, _about_topology)):
            if index == most:
                raise self.refusal(
                    f"returned more than {most:,} links for {n} clients; return fewer (is the iterator "
                    "endless?)"
                )
            values = self.row(item, _LINK, _about_topology, (2, 3))
            i, j = [self._client(value, item, n) for value in values[:2]]
            if i == j:
                raise self.refusal(f"returned {item!r:.60}; a client cannot have a link to itself")
            weight = None
            if len(values) == 3:
                weight = self.number(values[2], 0.0, 1.0, "a weight", partial("in {!r:.60}".format, item))
            for link in [(i, j)] if self.directed else [(i, j), (j, i)]:
                if links.setdefault(link, weight) != weight:
                    raise self.refusal(f"returned {item!r:.60} after the same link with another weight")
        return links

    def _add_array(self, links: Links, array: NDArray[Any], n: int) -> None:
        if array.shape != (n, n) or array.dtype.kind not in "biuf":
            what = f"an array of {array.dtype} with shape {array.shape}"
            raise self.refusal(f"returned {what}; return numbers with shape {(n, n)}")
        for i, j in np.argwhere(array != 0).tolist():
            if i == j:
                self._require_whole_row(array, i)
                continue
            if not self.directed and array[j, i] == 0:
                raise self.refusal(
                    f"returned an array with a link in row {i}, column {j}, but none in row {j}, column "
                    f"{i}: one-way links need directed = true"
                )
            weight = None
            if array.dtype.kind != "b":
                about = partial("in row {}, column {}".format, i, j)
                weight = self.number(array[i, j].item(), 0.0, 1.0, "a weight", about)
            links[j, i] = weight  # row i: senders to client i

    def _require_whole_row(self, array: NDArray[Any], row: int) -> None:
        """Raise an error if a row with a nonzero diagonal does not add up to 1."""
        total = float(array[row].sum())
        if array.dtype.kind != "b" and not abs(total - 1) <= _MORE_THAN_ALL:
            raise self.refusal(
                f"returned an array whose row {row} adds up to {total:g} with its diagonal; it must be 1, or "
                "the diagonal must be 0"
            )

    def _client(self, value: Any, item: Any, n: int) -> int:
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not is_whole or not 0 <= value < n:
            raise self.refusal(f"returned {item!r:.60}; clients are whole numbers from 0 to {n - 1}")
        return int(value)

    def _require_weights(self, n: int, links: Links) -> None:
        """Raise an error without links, for weights of only some, and if a receiver's weights exceed 1."""
        if not links and n > 1:
            raise self.refusal("returned no link, so no client could send to another")
        given = [0.0] * n
        for (_, receiver), weight in links.items():
            given[receiver] += weight or 0.0
        weights = [weight for weight in links.values() if weight is not None]
        if weights and len(weights) < len(links):
            raise self.refusal("returned weights for some links only; return a weight for all links or none")
        most = max(range(n), key=given.__getitem__)
        if given[most] > 1 + _MORE_THAN_ALL:
            raise self.refusal(
                f"returned weights of client {most} that add up to {given[most]:g}; must be at most 1 (the "
                "remainder is the weight of the client's own model)"
            )


def _about_topology() -> str:
    return "as the topology"
