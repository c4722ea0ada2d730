"""The weights that CoBo's clients hold, each in common with a peer."""

from collections import Counter
from collections.abc import Mapping
from typing import cast

from protocols.cobo.settings import CoBoSettings
from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.mathematics import project_on_simplex
from protocols.framework.vectors import Scalar, Vector


class PairWeights(Component):
    """The weights w_ik of client i, by peer k: each in [0, 1], or all together on the simplex (remark 1).

    They begin at 1, on the simplex at 1/(n - 1). That of a newcomer begins at 1, on the simplex at 0.
    """

    def __init__(self, client: Client, simplex: bool) -> None:
        super().__init__(client)
        self.simplex = simplex
        initial = 1.0 / max(1, len(client.peers)) if simplex else 1.0
        self._weights: dict[str, float | Scalar] = dict.fromkeys(client.peers, initial)
        self._updates: Counter[str] = Counter()

    def weight(self, peer: str) -> float | Scalar:
        """w_ik."""
        return self._weights.setdefault(peer, 0.0 if self.simplex else 1.0)

    def updates(self, peer: str) -> int:
        """How many gradient steps the weight of `peer` has made."""
        return self._updates[peer]

    def known(self) -> dict[str, float | Scalar]:
        """All weights by peer; on the simplex only those of present peers."""
        names = self.client.peers if self.simplex else self._weights
        return {peer: self._weights[peer] for peer in names if peer in self._weights}

    def step(self, ours: Vector, theirs: Vector) -> Scalar:
        """gamma <g_i(z), g_k(z)>: how far a weight moves by the two gradients at the midpoint z (eq. 4)."""
        return cast(CoBoSettings, self.client.settings).gamma * self.client.dot(ours, theirs)

    def ascend(self, peer: str, step: Scalar) -> None:
        """One projected gradient step on the weight of `peer` (eq. 4); on the simplex strangers have none."""
        self._updates[peer] += 1
        self.take_back_shares()
        moved = self.weight(peer) + step
        if not self.simplex:
            self._weights[peer] = moved.clip(0.0, 1.0)
        elif self.client.is_peer(peer):
            self._project(self._row() | {peer: float(moved)})

    def replace(self, peer: str, weight: float | Scalar, updates: int | None = None) -> None:
        """Take over the other end's weight if it has seen more updates; on the simplex each has its own."""
        if not self.simplex and (updates is None or updates > self._updates[peer]):
            self._weights[peer] = weight
            self._updates[peer] = self._updates[peer] if updates is None else updates

    def peer_changed(self, peer: str, up: bool) -> None:
        if not up:
            self.take_back_shares()

    def take_back_shares(self) -> None:
        """On the simplex: give the shares of those that are no peers any more to the others.

        A peer that leaves a sampled view is not always reported as gone, so this is checked at each update.
        """
        if self.simplex:
            strangers = [name for name in self._weights if not self.client.is_peer(name)]
            if any(self._weights[name] != 0 for name in strangers):
                self._weights |= dict.fromkeys(strangers, 0.0)
                self._project(self._row())

    def _row(self) -> dict[str, float]:
        return {name: float(self.weight(name)) for name in self.client.peers}

    def _project(self, row: Mapping[str, float]) -> None:
        """Give the peers the shares of 1 that are nearest to the numbers in `row`."""
        if row:
            shares = project_on_simplex(list(row.values()))
            self._weights |= {name: float(share) for name, share in zip(row, shares, strict=True)}
