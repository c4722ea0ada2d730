"""The neighbourhood of a client of MAPL: who has a weight, and what becomes of who is silent, gone or new."""

from __future__ import annotations

import math
from collections.abc import Mapping

from protocols.framework.client import Client, ClientContext, Compute
from protocols.mapl.messages import Knowledge, KnowledgeOnDemand, KnowledgeWanted, Parted
from protocols.mapl.settings import MaplSettings


class Neighbours(Client):
    """A client that gives peers weights, and knows what they sent last."""

    settings: MaplSettings

    def __init__(self, name: str, context: ClientContext, compute: Compute, settings: MaplSettings) -> None:
        super().__init__(name, context, compute, settings)
        self.shares: dict[str, float] = {}  # the weights of the neighbours; the own one is what they leave
        self.known: dict[str, Knowledge] = {}  # the latest of every peer that sent some
        self.new_heads: dict[str, None] = {}  # peers whose head came after the weights were learned last
        self.judged: dict[str, None] | None = None  # neighbours whose weight CGL learned; None: it never ran
        self.parted: dict[str, None] = {}  # peers that were told so
        self.heard_at: dict[str, float] = {}  # when each neighbour sent something last
        self.asked: dict[str, float] = {}  # when each that has yet to answer was asked for what it knows
        self.wait_at_first(settings.patience)
        self.passes = 0
        self.begun = False

    async def on_start(self) -> None:
        for peer in self.shares:  # back with what it had: the silence was its own
            self.heard_at[peer] = self.now
            self.ask_for_knowledge(peer)
        await super().on_start()

    def weights(self) -> Mapping[str, float]:
        return self.shares

    @property
    def weights_are_shares(self) -> bool:
        return True

    @property
    def edge_threshold(self) -> float:
        return 0.0  # neighbours are those with a weight at all

    @property
    def warm(self) -> bool:
        """Whether the head has been trained long enough to tell something."""
        return self.settings.graph_learning and self.passes >= self.settings.warm_up

    def begin(self) -> None:
        """Give the first neighbours equal weights; who comes late asks them for what they know so far."""
        self.begun = True
        chosen, count = list(self.peers), self.settings.neighbours_at_start
        if count is not None and count < len(chosen):
            chosen = sorted([chosen[k] for k in self.rng.permutation(len(chosen))[:count].tolist()])
        for peer in chosen:
            self.shares[peer] = 1 / (1 + len(chosen))
            self.heard_at[peer] = self.now
            if self.late:
                self.ask_for_knowledge(peer)

    def part_from(self, peer: str) -> None:
        """Tell a peer that it has no weight, unless it was only asked what it knows and never had one."""
        asked_only = type(self.known.pop(peer)) is KnowledgeOnDemand and peer not in self.heard_at
        if not asked_only:
            self.heard_at.pop(peer, None)
            self.parted[peer] = None
            self.tell(peer, Parted())

    def drop(self, peer: str) -> None:
        """Take a neighbour's weight away and give it to the client itself and the neighbours judged by CGL.

        In proportion to what they have: CGL has learned how they compare, and the authors' step along the
        sign, which moves all that are similar enough by as much, would never restore it. One not judged yet
        keeps its weight, as it does in CGL: that others prove different says nothing for it. As long as CGL
        has judged nobody, all stay equal, as if the client had begun with fewer neighbours.
        """
        for known in (self.known, self.new_heads, self.heard_at, self.asked):
            known.pop(peer, None)
        share = self.shares.pop(peer, 0.0)
        judged = self.shares if self.judged is None else self.judged
        kept = sum([weight for other, weight in self.shares.items() if other not in judged])
        for other in self.shares:
            if other in judged:
                self.shares[other] *= (1.0 - kept) / (1.0 - kept - share)

    def give_up(self, peer: str) -> None:
        """A neighbour stayed silent too long: no weight for it, whatever the membership makes of it.

        One that watches some peers only, or waits for more than a suspicion, would leave it there.
        """
        self.suspect(peer)
        self.drop(peer)

    def look_around(self) -> None:
        """Ask silent neighbours for news, give up on those that stay silent, and ask some strangers."""
        for peer in list(self.shares):
            silent_s = self.now - self.heard_at[peer]
            if silent_s > self.settings.patience:
                self.give_up(peer)
            elif peer in self.asked:
                if self.now > self.asked[peer] + self.round_trips.limit_s(peer, KnowledgeWanted):
                    self.round_trips.of(peer, KnowledgeWanted).failed()
                    self.ask_for_knowledge(peer)
            elif silent_s > self.settings.patience / 2:
                self.ask_for_knowledge(peer)
        if self.settings.explore and self.warm:
            strangers = [peer for peer in self.peers if peer not in self.shares]
            whole = math.floor(self.settings.explore)
            count = whole + (self.rng.random() < self.settings.explore - whole)
            for place in self.rng.permutation(len(strangers))[:count].tolist():
                self.tell(strangers[place], KnowledgeWanted())

    def ask_for_knowledge(self, peer: str) -> None:
        """Ask a neighbour for news, once more if no answer has come."""
        self.asked[peer] = self.now
        self.tell(peer, KnowledgeWanted())

    def peer_changed(self, peer: str, up: bool) -> None:
        """One that is gone has no weight any more."""
        super().peer_changed(peer, up)
        if not up:
            self.drop(peer)
            self.parted.pop(peer, None)
