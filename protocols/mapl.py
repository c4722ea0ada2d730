"""MAPL: models of different make, aligned by prototypes, in a neighbourhood that thins itself out.

Mukherjee, Simonetto and Jamali-Rad, "MAPL: Model agnostic peer-to-peer learning" (2024). Client i has a
backbone of its own, and like all others a projection, a head phi_i and prototypes xi_i of the classes:

    PML:  E local epochs on l_cont + l_ce + l_proto + l_uni              (eq. 2-5, protocols.contrastive)
    CGL:  w_i <- Proj_simplex(w_i - eta grad l_g(w_i; heads))            (eq. 6-9, protocols.graph_learning)
    xi_i <- w_ii xi_i + sum_j w_ij xi_j                                  (algorithm 3, line 8)

Synchronous: algorithm 3 in rounds of a pass over the own data, with a barrier among neighbours. Heads travel
and CGL runs from round `warm_up` (T_thr) on.

Asynchronous: nobody waits. A client shares what it has after each of its passes, mixes with the latest that
it holds of each neighbour, and runs CGL when enough new heads have come, once its own warm-up is over.

Beyond the paper, which leaves dynamic neighbourhoods open: whoever is gone loses its weight; a newcomer asks
those it knows of for what they have, and is a candidate for their weight once it sends a head; and a client
may ask some strangers for theirs (`explore`), so that it can start from a few neighbours
(`neighbours_at_start`) instead of all.

Differences to the paper: a neighbour whose weight falls to 0 is told, and drops the sender in turn, as it
gets nothing from it any more. (The paper's clients live in one process, where one can go on reading from
another that gives it no weight.) Neighbours without a known head keep their weight: CGL, and what a departure
leaves, go by them.
The choices of the authors' code are settings: `loss_variant`, `similarity`, `degree_gradient`, `graph_step`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import TypeVar

import numpy as np

from protocols import learner
from protocols import settings as base
from protocols.graph_learning import NEGLIGIBLE, Neighbourhood, admit, learn_weights
from protocols.local_losses import PersonalizedModelLoss
from protocols.mapl_messages import (
    Knowledge,
    KnowledgeOnDemand,
    KnowledgeWanted,
    Parted,
    RoundKnowledge,
    RoundKnowledgeWanted,
    is_next,
)
from protocols.mapl_settings import MaplSettings
from protocols.rounds import delay_s
from protocols.vectors import mix

K = TypeVar("K", bound=Knowledge)


class MAPL(learner.Learner):
    """MAPL, synchronous and asynchronous."""

    Settings = MaplSettings
    settings: MaplSettings
    collected = (RoundKnowledge,)
    parts = ("projection", "prototypes")
    heterogeneous = True
    mixed: tuple[str, ...] = ("prototypes",)
    """The parts that are shared and mixed."""

    def __init__(
        self, name: str, surroundings: learner.Surroundings, compute: learner.Compute, settings: MaplSettings
    ) -> None:
        super().__init__(name, surroundings, compute, settings)
        self.shares: dict[str, float] = {}  # the weights of the neighbours; the own one is what they leave
        self.known: dict[str, Knowledge] = {}  # the latest of every peer that sent some
        self.new_heads: dict[str, None] = {}  # peers whose head came after the weights were learned last
        self.judged: dict[str, None] | None = None  # neighbours whose weight CGL learned; None: it never ran
        self.parted: dict[str, None] = {}  # peers that were told so
        self.heard_at: dict[str, float] = {}  # when each neighbour sent something last
        self.asked: dict[str, float] = {}  # when each that has yet to answer was asked for what it knows
        self.shared: list[RoundKnowledge] = []  # in the last two rounds
        self.delayed = 0.0  # for how long (s) the last round waited for those that were late
        self.wait_at_first(settings.patience)
        self.passes = 0
        self.round = 0
        self.begun = False

    async def on_start(self) -> None:
        for peer in self.shares:  # back with what it had: the silence was its own
            self.heard_at[peer] = self.now
            self.ask_for_knowledge(peer)
        await super().on_start()

    @classmethod
    def objective(cls, settings: base.Settings) -> PersonalizedModelLoss:
        assert isinstance(settings, MaplSettings)
        return PersonalizedModelLoss(
            contrastive=settings.contrastive,
            prototype=settings.prototype,
            uniformity=settings.uniformity,
            temperature=settings.temperature,
            prototype_temperature=settings.prototype_temperature,
            variant=settings.loss_variant,
        )

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

    # --- an iteration ---------------------------------------------------------------------------------------

    async def step(self) -> None:
        if not self.begun:
            self.begin()
        update = await self.train(
            self.settings.local_epochs * self.compute.steps_per_epoch,
            fresh_optimizer=self.settings.fresh_optimizer,
        )
        self.params = self.params + update
        self.passes += 1
        self.round += 1
        if self.settings.mode == "synchronous":
            await self.meet()
        else:
            self.share(Knowledge)
        if self.warm and len(self.new_heads) >= self.heads_wanted:
            self.learn_weights()
        self.mix()
        self.look_around()

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

    async def meet(self) -> None:
        """Share, and wait for what the neighbours share in this round."""
        neighbours, began_s = list(self.shares), self.now
        self.share(RoundKnowledge)
        answers = await self.collect(
            RoundKnowledge,
            neighbours,
            timeout=self.settings.patience,
            where=lambda own: own.round == self.round or own.round > self.round + is_next(own),
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
            self.shared = [*self.shared[-1:], knowledge]
        for peer in self.shares:
            self.tell(peer, knowledge)

    def knowledge(self, kind: type[K]) -> K:
        """What this client knows now."""
        parts = {name: self.part(self.params, name) for name in self.mixed}
        head = self.part(self.params, "head") if self.warm else None
        return kind(parts["prototypes"], head, parts.get("backbone"), self.samples, self.round, self.now)

    def mix(self) -> None:
        """xi_i <- w_ii xi_i + sum_j w_ij xi_j with the latest of each neighbour, the own for one without."""
        weighted: list[tuple[float, Knowledge]] = []
        for peer, share in self.shares.items():
            knowledge = self.known.get(peer)
            if knowledge is not None:
                age_s = self.now - knowledge.time
                self.observe("staleness", age_s)
                weighted.append((share * self.discount(age_s), knowledge))
        own = 1.0 - sum([weight for weight, _ in weighted])
        for name in self.mixed:
            terms = [(own, self.part(self.params, name))]
            terms += [(weight, getattr(knowledge, name)) for weight, knowledge in weighted]
            self.params = self.with_part(self.params, name, mix(terms))

    def discount(self, age_s: float) -> float:
        """How much of its weight a neighbour has whose knowledge is so old."""
        half_life_s = self.settings.half_life
        return 1.0 if half_life_s is None else 0.5 ** (age_s / half_life_s)

    # --- the weights ----------------------------------------------------------------------------------------

    @property
    def heads_wanted(self) -> int:
        """New heads that it takes to learn the weights."""
        return max(1, math.ceil(self.settings.new_heads * len(self.shares)))

    def learn_weights(self) -> None:
        """CGL among all whose heads are known; neighbours without one keep their weight."""
        self.new_heads.clear()
        known = {
            peer: own
            for peer, own in self.known.items()
            if own.head is not None and (peer in self.shares or self.is_peer(peer))
        }
        heads = {peer: own.head.numpy() for peer, own in known.items() if own.head is not None}
        before = Neighbourhood(1.0 - sum(self.shares.values()), self.shares)
        if self.settings.graph_step == "sign":
            before = self.with_strangers(before, heads)
        self.shares = {peer: share for peer, share in self.learned(before, heads).items() if share > 0}
        self.judged = {peer: None for peer in self.shares if peer in heads}
        for peer in self.shares:
            self.heard_at.setdefault(peer, self.now)
            self.parted.pop(peer, None)
        for peer in known:
            if peer not in self.shares:
                self.part_from(peer)

    def learned(self, before: Neighbourhood, heads: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        """The peers' weights after CGL."""
        own_head = self.part(self.params, "head").numpy()
        samples = {peer: self.known[peer].samples for peer in heads}
        own = self.settings
        return learn_weights(
            before, own_head, heads, self.samples, samples, self.compute.classes, own.graph
        ).peers

    def with_strangers(self, before: Neighbourhood, heads: Mapping[str, np.ndarray]) -> Neighbourhood:
        """The weights with an equal share for those strangers that would not lose from it at once.

        A step along the sign lifts nobody from 0 who is like the others: all move by as much.
        """
        strangers = [
            peer for peer, head in heads.items() if peer not in self.shares and np.isfinite(head).all()
        ]
        tried = reduce(admit, strangers, before)
        learned = self.learned(tried, heads) if strangers else {}
        welcome = [peer for peer in strangers if learned[peer] >= tried.peers[peer] - NEGLIGIBLE]
        return reduce(admit, welcome, before)

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

    # --- what others send -----------------------------------------------------------------------------------

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
            shared = [own for own in self.shared if own.round == number] or self.shared
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
            own = self.knowledge(RoundKnowledge)
            answer = replace(own, round=max(self.round, knowledge.round), wanted=False)
            self.tell(sender, Parted() if sender in self.parted else answer)

    def peer_changed(self, peer: str, up: bool) -> None:
        """One that is gone has no weight any more."""
        super().peer_changed(peer, up)
        if not up:
            self.drop(peer)
            self.parted.pop(peer, None)
