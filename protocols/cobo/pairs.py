"""The weights that CoBo's clients hold, each in common with a peer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from protocols.cobo.messages import LatestModel
from protocols.cobo.settings import CoBoSettings, expected_updates
from protocols.framework.client import ClientContext, Compute
from protocols.framework.mathematics import project_on_simplex
from protocols.framework.vectors import Scalar
from protocols.shared.pace import PeerPace
from protocols.shared.pair_ledger import Account, Ledger
from protocols.shared.round_letters import LetterRounds


@dataclass
class Pair:
    """What a client knows of one peer.

    Their weight: after `version` updates in rounds; without rounds the `ledger` counts them. How fast the
    peer is, by its models; the latest of these, and how often it has pulled.
    `owed`: updates that the sampling has called for and that this end has yet to make. `asking`: it is at
    one. `declined`: the peer has no time for one, until it is heard from again, which was at `heard_s` (s)
    last.
    """

    weight: float | Scalar
    ledger: Ledger
    version: int = 0
    pace: PeerPace = field(default_factory=PeerPace)
    latest: LatestModel | None = None
    pulled: int = 0
    owed: int = 0
    asking: bool = False
    declined: bool = False
    heard_s: float = -math.inf


class PairLearner(LetterRounds):
    """A client that has a weight in common with each of its peers."""

    settings: CoBoSettings

    def __init__(
        self,
        name: str,
        context: ClientContext,
        compute: Compute,
        settings: CoBoSettings,
    ) -> None:
        super().__init__(name, context, compute, settings)
        initial = 1.0 if self.settings.domain == "box" else 1.0 / max(1, len(self.peers))
        self.pairs = {peer: Pair(initial, Ledger(name < peer)) for peer in self.peers}

    def pair(self, peer: str) -> Pair:
        """What is known of `peer`; one that was not there at the start begins as a newcomer."""
        pair = self.pairs.get(peer)
        if pair is None:
            weight = 1.0 if self.settings.domain == "box" else 0.0
            pair = self.pairs[peer] = Pair(weight, Ledger(self.name < peer))
        return pair

    def peer_changed(self, peer: str, up: bool) -> None:
        """One that is gone is forgotten at once."""
        super().peer_changed(peer, up)
        if not up:
            self.forget_strangers()

    def forget_strangers(self) -> None:
        """Whoever is no peer pulls no more; on the simplex its share is the others'.

        Not everybody who leaves a sampled view is reported as gone, so this is looked up now and then. By the
        time that it is a peer again, its model would be too old to be of use.
        """
        peers = set(self.peers)
        strangers = [pair for name, pair in self.pairs.items() if name not in peers]
        for pair in strangers:
            pair.latest = None
        if self.settings.domain == "simplex" and any(pair.weight != 0 for pair in strangers):
            for pair in strangers:
                pair.weight = 0.0
            self.share_out(self.row())

    def row(self) -> dict[str, float]:
        """On the simplex: each peer's share."""
        return {name: float(self.pair(name).weight) for name in self.peers}

    def share_out(self, row: Mapping[str, float]) -> None:
        """Give the peers the shares of 1 that are nearest to the numbers in `row`."""
        if row:
            for name, weight in zip(row, project_on_simplex(list(row.values())), strict=True):
                self.pair(name).weight = float(weight)

    def weights(self) -> Mapping[str, float | Scalar]:
        if self.settings.domain == "box":
            return {peer: self.evidence(pair) * pair.weight for peer, pair in self.pairs.items()}
        return {peer: self.pairs[peer].weight for peer in self.peers if peer in self.pairs}

    @property
    def weights_are_shares(self) -> bool:
        return self.settings.domain == "simplex"

    def evidence(self, pair: Pair) -> float:
        """How much a pair's weight counts, from 0 to 1: in rounds wholly, else by how often it has met.

        Beside what the iterations of its slower end call for: a newcomer, or a slow client, has had no more.
        """
        if not self.settings.evidence or pair.latest is None or self.settings.mode == "synchronous":
            return 1.0
        iterations = min(self.iterations, pair.latest.iterations)
        wanted = expected_updates(self.settings, iterations, len(self.peers) + 1) / self.settings.evidence
        return min(1.0, pair.ledger.steps_in_all / wanted) if wanted > 1 else 1.0

    def ascend(self, peer: str, step: Scalar) -> None:
        """One projected gradient step on the weight of `peer` (eq. 4); on the simplex only a peer has one."""
        pair = self.pair(peer)
        pair.version += 1
        if self.settings.domain == "simplex":
            self.forget_strangers()
        moved = pair.weight + step
        assert not isinstance(moved, float)
        if self.settings.domain == "box":
            pair.weight = moved.clip(0.0, 1.0)
        elif self.is_peer(peer):
            self.share_out(self.row() | {peer: float(moved)})

    def settle(self, peer: str, account: Account) -> None:
        """Make up for what this end has missed of the updates without rounds."""
        pair = self.pair(peer)
        news = pair.ledger.settle(account)
        if self.settings.domain == "box" and news.value is not None:
            pair.weight = news.value
        else:
            for step in news.steps:
                self.ascend(peer, step)

    def adopt(self, peer: str, version: int, weight: float | Scalar) -> None:
        """In rounds: take over a weight that has seen more updates; on the simplex a row is its client's."""
        pair = self.pair(peer)
        if self.settings.domain == "box" and version > pair.version:
            pair.weight, pair.version = weight, version
