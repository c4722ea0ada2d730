"""Weights of CoBo's clients, each shared with a peer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from protocols.cobo.settings import CoBoSettings
from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.per_peer import PerPeer
from protocols.framework.vectors import Scalar, Vector

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class PairWeight:
    """Weight of a pair, and its number of gradient steps.

    level: on the simplex, the value to which the next step is added: the weight, or a value below it.
    """

    weight: float | Scalar
    updates: int = 0
    level: float | Scalar = 0.0


class PairWeights(Component):
    """Weights w_ik of client i, by peer k: each in [0, 1], or all together on the simplex (remark 1).

    Weights start at 1, on the simplex at 1/(n - 1). The weight of a newcomer starts at 1, on the simplex at
    0. The weight of a peer that leaves is kept for its return; on the simplex, the other peers get this
    weight.

    lazy: on the simplex, steps are added to the values before the projection (lazy projection; Zinkevich,
    2003), so that the order of steps does not matter. Otherwise, if the steps of peers come one by one, the
    part that all steps have in common would favor the peer with the last step, because this part is already
    clipped away for the other peers.
    """

    def __init__(self, client: Client, simplex: bool, lazy: bool = False) -> None:
        super().__init__(client)
        self.simplex = simplex
        self.lazy = lazy
        self._pairs = PerPeer(
            client, lambda: PairWeight(0.0 if simplex else 1.0), on_departure=self._peer_left
        )
        for peer in client.peers:
            pair = self._pairs[peer]
            pair.weight = pair.level = 1.0 / max(1, len(client.peers)) if simplex else 1.0

    def weight(self, peer: str) -> float | Scalar:
        """Return w_ik."""
        return self._pairs[peer].weight

    def updates(self, peer: str) -> int:
        """Return the number of gradient steps of the weight of `peer`."""
        return self._pairs[peer].updates

    def known(self) -> dict[str, float | Scalar]:
        """Return all weights by peer; on the simplex only the weights of present peers."""
        names = self.client.peers if self.simplex else self._pairs
        return {peer: self._pairs[peer].weight for peer in names if peer in self._pairs}

    def increment(self, ours: Vector, theirs: Vector) -> Scalar:
        """Return gamma <g_i(z), g_k(z)>, the step of a weight by the gradients at midpoint z (eq. 4)."""
        return cast(CoBoSettings, self.client.settings).gamma * self.client.dot(ours, theirs)

    def ascend(self, steps: Mapping[str, Scalar]) -> None:
        """Take one projected gradient step on the weights of these peers (eq. 4).

        On the simplex the whole row is projected once (eq. 1): a projection after each peer would depend on
        their order. Clients that are not peers have no share there.
        """
        self.take_back_shares()
        row: dict[str, Scalar] = {}
        for peer, step in steps.items():
            pair = self._pairs[peer]
            pair.updates += 1
            if not self.simplex:
                pair.weight = (pair.weight + step).clip(0.0, 1.0)
            elif self.client.is_peer(peer):
                row[peer] = pair.level + step
        if row:
            self._project(self._row() | row)

    def catch_up(self, peer: str, weight: float | Scalar, updates: int | None = None) -> None:
        """Adopt `weight`, the value of the pair's weight that a peer has sent; on the simplex, do nothing.

        updates: the number of updates in `weight`, which is adopted only if this client's own value has
        fewer; None to adopt `weight` in any case.
        """
        pair = self._pairs[peer]
        if not self.simplex and (updates is None or updates > pair.updates):
            pair.weight = weight
            pair.updates = pair.updates if updates is None else updates

    def _peer_left(self, peer: str, pair: PairWeight | None) -> PairWeight | None:
        self.take_back_shares()
        return pair

    def take_back_shares(self) -> None:
        """On the simplex, distribute the shares of former peers among the present peers.

        A departure from a sampled view is not always reported, so this is checked at each update.
        """
        if self.simplex:
            strangers = [pair for name, pair in self._pairs.items() if not self.client.is_peer(name)]
            # A float is 0 here, and a pending weight is not read, which would compute it.
            if any(not isinstance(pair.weight, float) or pair.weight != 0 for pair in strangers):
                for pair in strangers:
                    pair.weight = pair.level = 0.0
                self._project(self._row())

    def _row(self) -> dict[str, float | Scalar]:
        return {name: self._pairs[name].level for name in self.client.peers}

    def _project(self, row: Mapping[str, float | Scalar]) -> None:
        """Set the peers' shares to the point of the simplex nearest to the values in `row`; deferred."""
        if row:
            for name, level in zip(
                row, self.client.apply(subtract_simplex_threshold, *row.values()), strict=True
            ):
                pair = self._pairs[name]
                pair.weight = level.clip(0.0, 1.0)
                pair.level = level if self.lazy else pair.weight


def subtract_simplex_threshold(*row: Tensor) -> tuple[Tensor, ...]:
    """Subtract the threshold at which the positive results are the projection on the simplex; for `apply`.

    Clipped to [0, 1], the values equal the result of `mathematics.project_on_simplex`.
    """
    import torch  # already imported by any code that computes

    values = torch.stack(row)
    values = values - values.max()
    descending = values.sort(descending=True).values
    thresholds = (descending.cumsum(0) - 1) / torch.arange(1, len(row) + 1, device=values.device)
    kept = (descending > thresholds).sum() - 1
    return (values - thresholds.gather(0, kept[None])).unbind()
