"""The weights that CoBo's clients hold, each in common with a peer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.mathematics import project_on_simplex
from protocols.framework.vectors import Scalar


@dataclass
class PairWeight:
    """w_ik, after `version` updates."""

    value: float | Scalar
    version: int = 0


class PairWeights(Component):
    """One client's weights w_ik: each in [0, 1] (`box`), or all together on the simplex (remark 1).

    They begin at 1, on the simplex at 1/(n - 1). A newcomer's begins at 1, on the simplex at 0.
    """

    def __init__(self, client: Client, simplex: bool) -> None:
        super().__init__(client)
        self.simplex = simplex
        initial = 1.0 / max(1, len(client.peers)) if simplex else 1.0
        self._of = {peer: PairWeight(initial) for peer in client.peers}

    def of(self, peer: str) -> PairWeight:
        """What is held in common with `peer`."""
        if peer not in self._of:
            self._of[peer] = PairWeight(0.0 if self.simplex else 1.0)
        return self._of[peer]

    def weight(self, peer: str) -> float | Scalar:
        """w_ik."""
        return self.of(peer).value

    def known(self) -> dict[str, float | Scalar]:
        """The weights that there are, by peer; on the simplex those of present peers."""
        names = self.client.peers if self.simplex else self._of
        return {peer: self._of[peer].value for peer in names if peer in self._of}

    def ascend(self, peer: str, step: Scalar) -> None:
        """One projected gradient step on the weight of `peer` (eq. 4); on the simplex only a peer has one."""
        pair = self.of(peer)
        pair.version += 1
        if self.simplex:
            self.share_out_strangers()
        moved = pair.value + step
        assert not isinstance(moved, float)
        if not self.simplex:
            pair.value = moved.clip(0.0, 1.0)
        elif self.client.is_peer(peer):
            self._share_out(self._row() | {peer: float(moved)})

    def replace(self, peer: str, weight: float | Scalar, version: int | None = None) -> None:
        """Take over the other end's weight if it has seen more updates; on the simplex each has its own."""
        pair = self.of(peer)
        if not self.simplex and (version is None or version > pair.version):
            pair.value = weight
            pair.version = pair.version if version is None else version

    def peer_changed(self, peer: str, up: bool) -> None:
        if not up:
            self.share_out_strangers()

    def share_out_strangers(self) -> None:
        """On the simplex: the share of whoever is no peer any more is the others'.

        Not everybody who leaves a sampled view is reported as gone, so this is looked up now and then.
        """
        if not self.simplex:
            return
        peers = set(self.client.peers)
        strangers = [pair for name, pair in self._of.items() if name not in peers]
        if any(pair.value != 0 for pair in strangers):
            for pair in strangers:
                pair.value = 0.0
            self._share_out(self._row())

    def _row(self) -> dict[str, float]:
        return {name: float(self.weight(name)) for name in self.client.peers}

    def _share_out(self, row: Mapping[str, float]) -> None:
        """Give the peers the shares of 1 that are nearest to the numbers in `row`."""
        if row:
            for name, weight in zip(row, project_on_simplex(list(row.values())), strict=True):
                self.of(name).value = float(weight)
