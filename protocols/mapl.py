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
another that gives it no weight.) Neighbours without a known head keep their weight: CGL shares out the rest.
The choices of the authors' code are settings: `loss_variant`, `similarity`, `degree_gradient`, `graph_step`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

import numpy as np

from protocols import learner
from protocols import settings as base
from protocols.graph_learning import NEGLIGIBLE, Neighbourhood, admit, learn_weights
from protocols.local_losses import PersonalizedModelLoss
from protocols.mapl_settings import MaplSettings
from protocols.vectors import Vector, mix


@dataclass(frozen=True)
class Knowledge:
    """What a client shares: never its data, nor (without MAPL+) its backbone.

    prototypes [K * d_p]; head [K * (d_z + 1)], None before the end of the warm-up; backbone: MAPL+ only. They
    are the sender's after its pass number `round` over its `samples`, at `time` (s).
    """

    prototypes: Vector
    head: Vector | None
    backbone: Vector | None
    samples: int
    round: int
    time: float


@dataclass(frozen=True)
class RoundKnowledge(Knowledge):
    """What a neighbour waits for in the synchronous form.

    `wanted`: whether the sender waits for the receiver's; else it only answers, and wants no answer to that.
    """

    wanted: bool = True


@dataclass(frozen=True)
class KnowledgeOnDemand(Knowledge):
    """The answer to `KnowledgeWanted`."""


@dataclass(frozen=True)
class KnowledgeWanted:
    """Asks for the receiver's `Knowledge`."""


@dataclass(frozen=True)
class Parted:
    """The sender gives the receiver no weight, and will not send it what it learns."""


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
        self.parted: dict[str, None] = {}  # peers that were told so
        self.heard_at: dict[str, float] = {}  # when each neighbour sent something last
        self.asked_again: dict[str, float] = {}  # before when a silent one is not asked once more
        self.passes = 0
        self.round = 0
        self.begun = False

    async def on_start(self) -> None:
        for peer in self.shares:  # back with what it had: the silence was its own
            self.heard_at[peer] = self.now
            self.tell(peer, KnowledgeWanted())
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
                self.tell(peer, KnowledgeWanted())

    async def meet(self) -> None:
        """Share, and wait for what the neighbours share in this round."""
        neighbours = list(self.shares)
        self.share(RoundKnowledge)
        answers = await self.collect(
            RoundKnowledge,
            neighbours,
            timeout=self.settings.patience,
            where=lambda knowledge: knowledge.round >= self.round,
        )
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
        """Take a neighbour's weight away and share it out among the others and the client itself."""
        self.known.pop(peer, None)
        self.new_heads.pop(peer, None)
        self.heard_at.pop(peer, None)
        self.asked_again.pop(peer, None)
        share = self.shares.pop(peer, 0.0)
        for other in self.shares if share < 1.0 else ():
            self.shares[other] /= 1.0 - share

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
            elif silent_s > self.settings.patience / 2 and self.now >= self.asked_again.get(peer, 0.0):
                self.asked_again[peer] = self.now + self.settings.patience / 4
                self.tell(peer, KnowledgeWanted())
        if self.settings.explore and self.warm:
            strangers = [peer for peer in self.peers if peer not in self.shares]
            whole = math.floor(self.settings.explore)
            count = whole + (self.rng.random() < self.settings.explore - whole)
            for place in self.rng.permutation(len(strangers))[:count].tolist():
                self.tell(strangers[place], KnowledgeWanted())

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
            case Parted():
                self.drop(sender)
                self.give_up_on(sender)
                done = True
        return done

    def remember(self, knowledge: Knowledge, sender: str) -> None:
        """Keep the latest of a peer."""
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
