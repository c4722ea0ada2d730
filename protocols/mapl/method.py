"""Clients of MAPL: local training, learned weights and mixing, synchronous or asynchronous."""

import math
from collections.abc import Mapping
from functools import reduce
from typing import ClassVar, TypeVar

import numpy as np

from protocols.framework.client import Client
from protocols.framework.per_peer import PerPeer
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.rounds import Rounds
from protocols.framework.search_space import Range, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.mapl.graph_learning import NEGLIGIBLE, CollaborationWeights, add_peer_share, learn_weights
from protocols.mapl.messages import Knowledge, KnowledgeOnDemand, KnowledgeWanted, Parted, RoundKnowledge
from protocols.mapl.neighbours import Neighbours
from protocols.mapl.settings import MaplSettings
from protocols.shared.local_losses import PersonalizedModelLoss
from protocols.shared.pace import RelativePace
from protocols.shared.safeguard import COMPARED, Safeguard

K = TypeVar("K", bound=Knowledge)


class MaplClient(Client):
    """Common base of both forms of MAPL."""

    Settings = MaplSettings
    settings: MaplSettings
    parts = ("projection", "prototypes")
    heterogeneous = True
    two_way = True
    weights_are_shares = True
    edge_threshold = 0.0  # any weight makes a neighbor
    mixed: tuple[str, ...] = ("prototypes",)
    """Parts that are shared and mixed."""

    @classmethod
    def objective(cls, settings: ProtocolSettings) -> PersonalizedModelLoss:
        assert isinstance(settings, MaplSettings)
        return PersonalizedModelLoss(
            contrastive=settings.contrastive,
            prototype=settings.prototype,
            uniformity=settings.uniformity,
            temperature=settings.temperature,
            prototype_temperature=settings.prototype_temperature,
            variant=settings.loss_variant,
        )

    def setup(self) -> None:
        self.trainings = 0  # PMLs done, of E epochs each, without the one in progress
        self.neighbours = Neighbours(self, self.settings)

    async def on_start(self) -> None:
        self.neighbours.come_back()
        await super().on_start()

    async def train_locally(self) -> None:
        """Run PML, the local training: E epochs on the client's own samples."""
        if not self.neighbours.started:  # not in `setup`, which does not know whether this client is late
            self.neighbours.start()
        update = await self.train(
            self.settings.local_epochs * self.compute.steps_per_epoch,
            fresh_optimizer=self.settings.fresh_optimizer,
        )
        self.params = self.params + update
        self.trainings += 1

    @property
    def warm(self) -> bool:
        """True if weights are learned and the warm-up is over, so that heads are compared."""
        return self.settings.graph_learning and self.trainings >= self.settings.warm_up

    def knowledge(self, kind: type[K]) -> K:
        """Return this client's present parameters, for others."""
        parts = {name: self.part(self.params, name) for name in self.mixed}
        head = self.part(self.params, "head") if self.warm else None
        return kind(parts["prototypes"], head, parts.get("backbone"), self.samples, self.trainings, self.now)

    def intercept(self, message: object, sender: str) -> bool:
        """Use peers' knowledge at once when it arrives, even while this client trains; True if handled."""
        done = super().intercept(message, sender)
        match message:
            case Knowledge():
                self.neighbours.remember(message, sender)
                return type(message) is not RoundKnowledge or done  # `RoundKnowledge` is collected
            case KnowledgeWanted():
                self.tell(sender, self.knowledge(KnowledgeOnDemand))
                return True
            case Parted():
                self.neighbours.drop(sender)
                self.give_up_on(sender)
                return True
        return done

    def update_weights(self) -> None:
        """Learn the weights of all peers with a known head (CGL), if `warm` and enough heads are new.

        A neighbor without a known head keeps its weight. In synchronous mode, nearly all heads are new in
        each round, so CGL runs in each round, as in algorithm 3.
        """
        neighbours = self.neighbours
        if not self.warm or neighbours.new_heads() < self.heads_wanted:
            return
        known = {
            peer: knowledge
            for peer, knowledge in neighbours.known.items()
            if knowledge.head is not None and (peer in neighbours.shares or self.is_peer(peer))
        }
        heads = {peer: each.head.numpy() for peer, each in known.items() if each.head is not None}
        before = CollaborationWeights(1.0 - sum(neighbours.shares.values()), neighbours.shares)
        if self.settings.graph_step == "sign":
            before = self.with_strangers(before, heads)
        neighbours.adopt({peer: share for peer, share in self.cgl(before, heads).items() if share > 0}, heads)

    def cgl(self, before: CollaborationWeights, heads: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        """Return the peers' weights after collaborative graph learning (CGL)."""
        neighbours = self.neighbours
        head, classes = self.part(self.params, "head").numpy(), self.compute.classes
        samples = {peer: neighbours.known[peer].samples for peer in heads}
        return learn_weights(before, head, heads, self.samples, samples, classes, self.settings.graph).peers

    def with_strangers(
        self, before: CollaborationWeights, heads: Mapping[str, np.ndarray]
    ) -> CollaborationWeights:
        """Return the weights, with an equal share for each stranger whose share CGL would not reduce.

        The step along the sign moves all similar peers by the same amount, so it never lifts a stranger's
        weight from 0.
        """
        neighbours = self.neighbours
        strangers = [
            peer for peer, head in heads.items() if peer not in neighbours.shares and np.isfinite(head).all()
        ]
        tried = reduce(add_peer_share, strangers, before)
        learned = self.cgl(tried, heads) if strangers else {}
        welcome = [peer for peer in strangers if learned[peer] >= tried.peers[peer] - NEGLIGIBLE]
        return reduce(add_peer_share, welcome, before)

    @property
    def heads_wanted(self) -> int:
        """Number of new heads needed before the weights are learned again."""
        neighbours = self.neighbours
        return max(1, math.ceil(self.settings.new_heads * len(neighbours.shares)))

    def mix(self) -> None:
        """Mix: xi_i <- w_ii xi_i + sum_j w_ij xi_j, with the latest known xi_j of each neighbor j.

        The client's own xi_i replaces the xi_j of a neighbor that has not sent one yet, and gets the weight
        that older xi_j lose by `discount`. MAPL+ also mixes the backbones.
        """
        neighbours = self.neighbours
        weighted: list[tuple[float, Knowledge]] = []
        for peer, share in neighbours.shares.items():
            knowledge = neighbours.known.get(peer)
            if knowledge is not None:
                age_s = self.now - knowledge.time
                self.context.report(self.name, "staleness", age_s)
                weighted.append((share * self.discount(age_s), knowledge))
        kept = 1.0 - sum([weight for weight, _ in weighted])
        for name in self.mixed:
            terms = [(kept, self.part(self.params, name))]
            terms += [(weight, getattr(knowledge, name)) for weight, knowledge in weighted]
            self.params = self.with_part(self.params, name, mix(terms))

    def discount(self, age_s: float) -> float:
        """Return the factor for the weight of a neighbor with knowledge that is `age_s` seconds old."""
        half_life_s = self.settings.half_life
        return 1.0 if half_life_s is None else 0.5 ** (age_s / half_life_s)

    def weights(self) -> Mapping[str, float]:
        return self.neighbours.shares


class MAPLAsynchronous(MaplClient):
    """Client of MAPL without rounds: it sends its knowledge after each local training.

    In MAPL+ with `safeguard`, a client that is far behind its neighbors compares models before the end of its
    warm-up: its own, the mixture, and the complete models of neighbors. The client continues from the model
    that fits its samples best. After only a few steps, the client's own head would not fit the backbones of
    neighbors, and the client cannot yet compare heads.
    """

    def setup(self) -> None:
        super().setup()
        self.pace = RelativePace(self)
        enabled = self.settings.safeguard and "backbone" in self.mixed
        self.safeguard = Safeguard(self, self.pace, enabled=enabled)
        self.tried = PerPeer[int](self)  # number of comparisons with the complete model of each peer

    async def step(self) -> None:
        await self.train_locally()
        knowledge = self.knowledge(Knowledge)
        for peer in self.neighbours.shares:
            self.tell(peer, knowledge)
        self.update_weights()
        own = self.params
        self.mix()
        if not self.warm and self.safeguard.active:
            others = [] if self.safeguard.resting else self.complete_models()
            self.params = await self.safeguard.best(own, self.params, *others)
        self.neighbours.check_neighbours(explore=self.warm)

    def complete_models(self) -> list[Vector]:
        """Return complete models of the neighbors with a known head, at most `COMPARED`.

        If there are more, return those that were compared least often.
        """
        known = self.neighbours.known
        names = [peer for peer in self.neighbours.shares if peer in known and known[peer].head is not None]
        chosen = sorted(names, key=lambda peer: (self.tried.get(peer, 0), peer))[:COMPARED]
        models = []
        for name in chosen:
            self.tried[name] = self.tried.get(name, 0) + 1
            model = self.params
            for part in ("head", *self.mixed):
                model = self.with_part(model, part, getattr(known[name], part))
            models.append(model)
        return models

    def intercept(self, message: object, sender: str) -> bool:
        if isinstance(message, Knowledge):
            self.pace.met(sender, message.time, message.round)
        return super().intercept(message, sender)


class MAPL(MaplClient):
    """Client of MAPL in rounds: algorithm 3."""

    search_space = SearchSpace(
        "temperature 100, mu_1 0.5 and mu_2 0.1 of the paper (appendix A.2), with a decade on each side",
        {
            "temperature": Range(1.0, 100.0, log=True),
            "mu1": Range(0.05, 5.0, log=True),
            "mu2": Range(0.01, 1.0, log=True),
            "graph_learning_rate": Range(0.01, 1.0, log=True),
        },
    )
    collected = (RoundKnowledge,)
    asynchronous: ClassVar[type[Client] | None] = MAPLAsynchronous

    def setup(self) -> None:
        super().setup()
        self.rounds = Rounds(
            self,
            self.settings.patience,
            announced=self.round_knowledge,
            neighbours=self.neighbours.names,
            missed=self.neighbours.give_up,
            refuses=self.neighbours.refuses,
        )

    async def step(self) -> None:
        await self.train_locally()  # PML (line 2)
        self.rounds.announce()  # the head once it is warm (line 4), and the prototypes (line 7)
        self.neighbours.take_round(await self.rounds.gather())
        self.update_weights()  # CGL (line 5, algorithm 2)
        self.mix()  # the neighbors' prototypes, by these weights (line 8)
        self.neighbours.check_neighbours(explore=self.warm)  # not in the paper

    def round_knowledge(self) -> RoundKnowledge:
        """Return the message to the neighbors in a round."""
        return self.knowledge(RoundKnowledge)
