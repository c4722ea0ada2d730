"""What clients of MAPL know travels between them, in rounds and without, whatever messages are lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from protocols.mapl.graph_learning import Neighbourhood, admit
from protocols.mapl.messages import (
    Knowledge,
    KnowledgeOnDemand,
    KnowledgeWanted,
    Parted,
    RoundKnowledge,
    RoundKnowledgeWanted,
    is_next,
)
from protocols.mapl.neighbours import Neighbours
from protocols.shared.rounds import delay_s

K = TypeVar("K", bound=Knowledge)


class KnowledgeExchange(Neighbours):
    """A client that sends its neighbours what it knows, and remembers what they send."""

    collected = (RoundKnowledge,)
    mixed: tuple[str, ...] = ("prototypes",)
    """The parts that are shared and mixed."""
    round = 0
    shared: tuple[RoundKnowledge, ...] = ()
    """In the last two rounds."""
    delayed = 0.0
    """For how long (s) the last round waited for those that were late."""

    async def meet(self) -> None:
        """Share, and wait for what the neighbours share in this round."""
        neighbours, began_s = list(self.shares), self.now
        self.share(RoundKnowledge)
        answers = await self.collect(
            RoundKnowledge,
            neighbours,
            timeout=self.settings.patience,
            where=lambda news: news.round == self.round or news.round > self.round + is_next(news),
            reminder=RoundKnowledgeWanted(self.round),
        )
        usual_s = self.round_trips.usual_s(neighbours, RoundKnowledge)
        self.delayed = delay_s(answers.values(), self.now - began_s - usual_s)
        latest = max([knowledge.round for knowledge in answers.values() if knowledge.wanted], default=0)
        if latest > self.round:  # one that waits for this client went on without it, or has just let it in
            self.round = latest
            self.share(RoundKnowledge)
        self.discard(RoundKnowledge, lambda knowledge: knowledge.round <= self.round)
        for peer, knowledge in answers.items():
            if peer in self.shares:
                self.known[peer] = knowledge  # of this round: a fast one's next may be here already
                if knowledge.head is not None:
                    self.new_heads[peer] = None
        for peer in neighbours:
            if peer not in answers and peer in self.shares:
                self.give_up(peer)

    def share(self, kind: type[Knowledge]) -> None:
        """Send what this client knows to all neighbours."""
        knowledge = self.knowledge(kind)
        if isinstance(knowledge, RoundKnowledge):
            knowledge = replace(knowledge, delayed=self.delayed)
            self.shared = (*self.shared[-1:], knowledge)
        for peer in self.shares:
            self.tell(peer, knowledge)

    def knowledge(self, kind: type[K]) -> K:
        """What this client knows now."""
        parts = {name: self.part(self.params, name) for name in self.mixed}
        head = self.part(self.params, "head") if self.warm else None
        return kind(parts["prototypes"], head, parts.get("backbone"), self.samples, self.round, self.now)

    def heard(self, message: object, sender: str) -> bool:
        """What peers know counts from its arrival on, whatever this client is doing."""
        done = super().heard(message, sender)
        match message:
            case Knowledge():
                self.remember(message, sender)
                done = self.finished or type(message) is not RoundKnowledge  # that is collected
            case KnowledgeWanted():
                self.tell(sender, self.knowledge(KnowledgeOnDemand))
                done = True
            case RoundKnowledgeWanted(number, attempt):
                self.repeat(number, sender, attempt)
                done = True
            case Parted():
                self.drop(sender)
                self.give_up_on(sender)
                done = True
        return done

    def repeat(self, number: int, peer: str, attempt: int) -> None:
        """Send once more what was shared in a round, or now; who has yet to get there will."""
        if peer in self.parted:
            self.tell(peer, Parted())
        elif self.shared and self.shared[-1].round >= number:
            self.round_trips.lossy = True
            shared = [knowledge for knowledge in self.shared if knowledge.round == number] or self.shared
            wanted = peer in self.shares
            self.tell(peer, replace(shared[-1], wanted=wanted, repeated=True, attempt=attempt, delayed=0.0))

    def remember(self, knowledge: Knowledge, sender: str) -> None:
        """Keep the latest of a peer."""
        asked_s = self.asked.pop(sender, None)
        trip = self.round_trips.of(sender, KnowledgeWanted)
        if asked_s is not None and isinstance(knowledge, KnowledgeOnDemand) and not trip.failures:
            trip.measured(self.now - asked_s)
        trip.failures = 0
        before = self.known.get(sender)
        if sender in self.shares:
            self.heard_at[sender] = self.now
        if before is not None and before.time > knowledge.time:
            return  # overtaken on its way
        self.known[sender] = knowledge
        if knowledge.head is not None:
            self.new_heads[sender] = None
        offered = self.begun and not isinstance(knowledge, KnowledgeOnDemand)
        if (
            offered
            and not self.settings.graph_learning
            and sender not in self.shares
            and self.is_peer(sender)
        ):
            self.shares = dict(
                admit(Neighbourhood(1.0 - sum(self.shares.values()), self.shares), sender).peers
            )
            self.heard_at[sender] = self.now
        waits = isinstance(knowledge, RoundKnowledge) and knowledge.wanted
        if waits and self.begun and (self.finished or sender not in self.shares):
            # It waits for this client, which does not wait for it.
            known = self.knowledge(RoundKnowledge)
            answer = replace(known, round=max(self.round, knowledge.round), wanted=False)
            self.tell(sender, Parted() if sender in self.parted else answer)
