"""Neighbors of a client of MAPL, which are the peers with a weight: how they are found, and dropped."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.per_peer import PerPeer
from protocols.mapl.graph_learning import CollaborationWeights, add_peer_share
from protocols.mapl.messages import Knowledge, KnowledgeOnDemand, KnowledgeWanted, Parted
from protocols.mapl.settings import MaplSettings


@dataclass
class NeighbourState:
    """State of one peer as a neighbor.

    received_s: time of its last message as a neighbor. asked_s: time of the request for its knowledge, if it
    has yet to answer. has_new_head: whether its head arrived after the weights were last learned. judged:
    whether CGL learned its weight. unlinked: whether it was notified that it has no weight.
    """

    received_s: float | None = None
    asked_s: float | None = None
    has_new_head: bool = False
    judged: bool = False
    unlinked: bool = False


class Neighbours(Component):
    """Peers to which a client gives weights, and the last knowledge of all peers."""

    def __init__(self, client: Client, settings: MaplSettings) -> None:
        super().__init__(client)
        self.settings = settings
        self.shares: dict[str, float] = {}  # weights of the neighbors; the client has the remainder to 1
        self.known = PerPeer[Knowledge](client)  # the latest knowledge of each peer that sent some
        self.contacts = PerPeer(client, NeighbourState, on_departure=self._peer_left)
        self.has_judged = False  # whether CGL ever ran
        self.started = False
        client.round_trips.wait_at_first(settings.patience)

    def names(self) -> list[str]:
        """Return the peers with a weight."""
        return list(self.shares)

    def come_back(self) -> None:
        """Restart the clocks after an absence, and ask the neighbors for their knowledge.

        The client was away; its neighbors were not silent.
        """
        for peer in self.shares:
            self.contacts[peer].received_s = self.client.now
            self.ask_for_knowledge(peer)

    def start(self) -> None:
        """Give the first neighbors equal weights, and if the client is late, request their knowledge."""
        self.started = True
        chosen, count = list(self.client.peers), self.settings.neighbours_at_start
        if count is not None and count < len(chosen):
            chosen = sorted([chosen[k] for k in self.client.rng.permutation(len(chosen))[:count].tolist()])
        for peer in chosen:
            self.shares[peer] = 1 / (1 + len(chosen))
            self.contacts[peer].received_s = self.client.now
            if self.client.late:
                self.ask_for_knowledge(peer)

    def new_heads(self) -> int:
        """Return the number of heads that arrived after the weights were last learned."""
        return sum([contact.has_new_head for contact in self.contacts.values()])

    def adopt(self, shares: dict[str, float], judged: Collection[str]) -> None:
        """Adopt weights that CGL has learned from the heads of `judged`; unlink peers with a weight of 0."""
        self.shares, self.has_judged = shares, True
        for contact in self.contacts.values():
            contact.has_new_head, contact.judged = False, False
        for peer in shares:
            contact = self.contacts[peer]
            contact.judged, contact.unlinked = peer in judged, False
            if contact.received_s is None:
                contact.received_s = self.client.now
        for peer in judged:
            if peer not in shares:
                self.unlink(peer)

    def unlink(self, peer: str) -> None:
        """Notify a peer that it has no weight, unless it never had one and only answered a request."""
        contact = self.contacts[peer]
        answered_only = type(self.known.pop(peer)) is KnowledgeOnDemand and contact.received_s is None
        if not answered_only:
            contact.received_s, contact.unlinked = None, True
            self.client.tell(peer, Parted())

    def drop(self, peer: str) -> None:
        """Give a neighbor's weight to the client itself and to neighbors with learned weights.

        Their weights keep the proportions that CGL has learned. (The authors' step along the sign moves the
        weights of all sufficiently similar peers by the same amount, and would never restore other
        proportions.) A neighbor without a learned weight keeps its weight, as in CGL itself. Until CGL has
        run, all weights stay equal, as if the client had started with fewer neighbors.
        """
        self.known.pop(peer, None)
        contact = self.contacts.pop(peer, None)
        if contact is not None and contact.unlinked:
            self.contacts[peer] = NeighbourState(unlinked=True)
        share = self.shares.pop(peer, 0.0)
        judged = {other for other in self.shares if self.contacts[other].judged or not self.has_judged}
        kept = sum([weight for other, weight in self.shares.items() if other not in judged])
        for other in self.shares:
            if other in judged:
                self.shares[other] *= (1.0 - kept) / (1.0 - kept - share)

    def give_up(self, peer: str) -> None:
        """Drop a neighbor that stayed silent too long, whether or not the membership follows the suspicion.

        A membership that watches only some peers, or requires more than a suspicion, would keep it.
        """
        if peer in self.shares:
            self.client.suspect(peer)
            self.drop(peer)

    def check_neighbours(self, explore: bool) -> None:
        """Ask silent neighbors for their knowledge, and drop those that stay silent.

        explore: also ask as many strangers as the setting `explore` states.
        """
        for peer in list(self.shares):
            contact, trips = self.contacts[peer], self.client.round_trips
            assert contact.received_s is not None, "becoming a neighbor sets the time of the last message"
            silent_s = self.client.now - contact.received_s
            if silent_s > self.settings.patience:
                self.give_up(peer)
            elif contact.asked_s is not None:
                if self.client.now > contact.asked_s + trips.limit_s(peer, KnowledgeWanted):
                    trips.of(peer, KnowledgeWanted).failed()
                    self.ask_for_knowledge(peer)
            elif silent_s > self.settings.patience / 2:
                self.ask_for_knowledge(peer)
        if self.settings.explore and explore:
            strangers = [peer for peer in self.client.peers if peer not in self.shares]
            count = math.floor(self.settings.explore)
            if self.client.rng.random() < self.settings.explore - count:
                count += 1
            for index in self.client.rng.permutation(len(strangers))[:count].tolist():
                self.client.tell(strangers[index], KnowledgeWanted())

    def ask_for_knowledge(self, peer: str) -> None:
        """Ask a neighbor for its knowledge, for the first time or again."""
        self.contacts[peer].asked_s = self.client.now
        self.client.tell(peer, KnowledgeWanted())

    def refuses(self, peer: str) -> bool:
        """Return whether a peer that waits for this client was notified that it has no weight.

        If so, notify it again.
        """
        contact = self.contacts.get(peer)
        if contact is None or not contact.unlinked:
            return False
        self.client.tell(peer, Parted())
        return True

    def take_round(self, answers: Mapping[str, Knowledge]) -> None:
        """Use the neighbors' knowledge of this round, even if knowledge of the next round has arrived."""
        for peer, knowledge in answers.items():
            if peer in self.shares:
                self.known[peer] = knowledge
                self.contacts[peer].has_new_head |= knowledge.head is not None

    def remember(self, knowledge: Knowledge, sender: str) -> None:
        """Keep a peer's latest knowledge.

        If weights are not learned, a peer that sends knowledge without a request becomes a neighbor.
        """
        contact = self.contacts[sender]
        asked_s, contact.asked_s = contact.asked_s, None
        trip = self.client.round_trips.of(sender, KnowledgeWanted)
        on_demand = isinstance(knowledge, KnowledgeOnDemand)
        if asked_s is not None and on_demand and not trip.failures:
            trip.measured(self.client.now - asked_s)
        trip.failures = 0
        before = self.known.get(sender)
        if sender in self.shares:
            contact.received_s = self.client.now
        if before is not None and before.time > knowledge.time:
            return  # a later message overtook this one
        self.known[sender] = knowledge
        contact.has_new_head |= knowledge.head is not None
        learned = self.settings.graph_learning or sender in self.shares
        if self.started and not on_demand and not learned and self.client.is_peer(sender):
            self.shares = dict(
                add_peer_share(
                    CollaborationWeights(1.0 - sum(self.shares.values()), self.shares), sender
                ).peers
            )
            contact.received_s = self.client.now

    def _peer_left(self, peer: str, contact: NeighbourState | None) -> None:
        """Drop a peer that has left, with its weight."""
        self.drop(peer)
