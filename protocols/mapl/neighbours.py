"""The neighbours of a client of MAPL, which are the peers with a weight: silent, lost and new ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from protocols.framework.component import Component
from protocols.mapl.graph_learning import Neighbourhood, admit
from protocols.mapl.messages import Knowledge, KnowledgeOnDemand, KnowledgeWanted, Parted

if TYPE_CHECKING:
    from protocols.mapl.method import MaplClient


class Neighbours(Component):
    """The peers to which a client gives weights, and what all peers sent last."""

    def __init__(self, client: MaplClient) -> None:
        super().__init__(client)
        self.client: MaplClient
        self.settings = client.settings
        self.shares: dict[str, float] = {}  # the weights of the neighbours; the own one is what they leave
        self.known: dict[str, Knowledge] = {}  # the latest of every peer that sent some
        self.new_heads: dict[str, None] = {}  # peers whose head came after the weights were learned last
        self.judged: dict[str, None] | None = None  # neighbours whose weight CGL learned; None: it never ran
        self.unlinked: dict[str, None] = {}  # peers that were told that they have no weight
        self.heard_at: dict[str, float] = {}  # when each neighbour sent something last
        self.asked_at: dict[str, float] = {}  # when each that has yet to answer was asked for what it knows
        self.begun = False
        client.round_trips.wait_at_first(client.settings.patience)

    def names(self) -> list[str]:
        """The peers with a weight."""
        return list(self.shares)

    def come_back(self) -> None:
        """The client is back after a crash: its neighbours were not silent, it was away."""
        for peer in self.shares:
            self.heard_at[peer] = self.client.now
            self.ask_for_knowledge(peer)

    def begin(self) -> None:
        """Give the first neighbours equal weights; who comes late asks them for what they know so far."""
        self.begun = True
        chosen, count = list(self.client.peers), self.settings.neighbours_at_start
        if count is not None and count < len(chosen):
            chosen = sorted([chosen[k] for k in self.client.rng.permutation(len(chosen))[:count].tolist()])
        for peer in chosen:
            self.shares[peer] = 1 / (1 + len(chosen))
            self.heard_at[peer] = self.client.now
            if self.client.late:
                self.ask_for_knowledge(peer)

    def unlink(self, peer: str) -> None:
        """Tell a peer that it has no weight, unless it never had one and was only asked for its knowledge."""
        asked_only = type(self.known.pop(peer)) is KnowledgeOnDemand and peer not in self.heard_at
        if not asked_only:
            self.heard_at.pop(peer, None)
            self.unlinked[peer] = None
            self.client.tell(peer, Parted())

    def drop(self, peer: str) -> None:
        """Take a neighbour's weight and give it to the client itself and the neighbours judged by CGL.

        In proportion to their weights, since CGL has learned these proportions. (The authors' step along the
        sign moves all that are similar enough by the same amount, and would never restore them.) A neighbour
        that is not judged yet keeps its weight, as in CGL itself. As long as CGL has judged nobody, all stay
        equal, as if the client had begun with fewer neighbours.
        """
        for known in (self.known, self.new_heads, self.heard_at, self.asked_at):
            known.pop(peer, None)
        share = self.shares.pop(peer, 0.0)
        judged = self.shares if self.judged is None else self.judged
        kept = sum([weight for other, weight in self.shares.items() if other not in judged])
        for other in self.shares:
            if other in judged:
                self.shares[other] *= (1.0 - kept) / (1.0 - kept - share)

    def give_up(self, peer: str) -> None:
        """A neighbour stayed silent too long: drop it now, whatever the membership makes of the suspicion.

        A membership that watches only some peers, or waits for more than a suspicion, would keep it.
        """
        if peer in self.shares:
            self.client.suspect(peer)
            self.drop(peer)

    def check_neighbours(self) -> None:
        """Ask silent neighbours for their knowledge, drop those that stay silent, and ask some strangers."""
        for peer in list(self.shares):
            silent_s = self.client.now - self.heard_at[peer]
            if silent_s > self.settings.patience:
                self.give_up(peer)
            elif peer in self.asked_at:
                if self.client.now > self.asked_at[peer] + self.client.round_trips.limit_s(
                    peer, KnowledgeWanted
                ):
                    self.client.round_trips.of(peer, KnowledgeWanted).failed()
                    self.ask_for_knowledge(peer)
            elif silent_s > self.settings.patience / 2:
                self.ask_for_knowledge(peer)
        if self.settings.explore and self.client.warm:
            strangers = [peer for peer in self.client.peers if peer not in self.shares]
            count = math.floor(self.settings.explore)
            if self.client.rng.random() < self.settings.explore - count:
                count += 1
            for index in self.client.rng.permutation(len(strangers))[:count].tolist():
                self.client.tell(strangers[index], KnowledgeWanted())

    def ask_for_knowledge(self, peer: str) -> None:
        """Ask a neighbour for its knowledge, for the first time or again."""
        self.asked_at[peer] = self.client.now
        self.client.tell(peer, KnowledgeWanted())

    def refuses(self, peer: str) -> bool:
        """Whether a peer that waits for this client has no weight; if so, tell it again."""
        if peer in self.unlinked:
            self.client.tell(peer, Parted())
        return peer in self.unlinked

    def take_round(self, answers: Mapping[str, Knowledge]) -> None:
        """Use the neighbours' knowledge of this round, even if a fast one's of the next is here already."""
        for peer, knowledge in answers.items():
            if peer in self.shares:
                self.known[peer] = knowledge
                if knowledge.head is not None:
                    self.new_heads[peer] = None

    def remember(self, knowledge: Knowledge, sender: str) -> None:
        """Keep a peer's latest knowledge. If weights are not learned, the sender becomes a neighbour."""
        asked_s = self.asked_at.pop(sender, None)
        trip = self.client.round_trips.of(sender, KnowledgeWanted)
        on_demand = isinstance(knowledge, KnowledgeOnDemand)
        if asked_s is not None and on_demand and not trip.failures:
            trip.measured(self.client.now - asked_s)
        trip.failures = 0
        before = self.known.get(sender)
        if sender in self.shares:
            self.heard_at[sender] = self.client.now
        if before is not None and before.time > knowledge.time:
            return  # overtaken on its way
        self.known[sender] = knowledge
        if knowledge.head is not None:
            self.new_heads[sender] = None
        learned = self.settings.graph_learning or sender in self.shares
        if self.begun and not on_demand and not learned and self.client.is_peer(sender):
            self.shares = dict(
                admit(Neighbourhood(1.0 - sum(self.shares.values()), self.shares), sender).peers
            )
            self.heard_at[sender] = self.client.now

    def peer_changed(self, peer: str, up: bool) -> None:
        """A peer that is gone loses its weight."""
        if not up:
            self.drop(peer)
            self.unlinked.pop(peer, None)
