"""MAPL's iteration: local training, learned weights, mixing; who is there and what was heard is elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from protocols.framework.client import ProtocolSettings, Requirement
from protocols.framework.node import two_way_links
from protocols.framework.vectors import mix
from protocols.mapl.exchange import KnowledgeExchange
from protocols.mapl.graph_learning import NEGLIGIBLE, Neighbourhood, admit, learn_weights
from protocols.mapl.messages import Knowledge
from protocols.mapl.settings import MaplSettings
from protocols.shared.local_losses import PersonalizedModelLoss


class MAPL(KnowledgeExchange):
    """MAPL, synchronous and asynchronous."""

    Settings = MaplSettings
    parts = ("projection", "prototypes")
    heterogeneous = True

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return two_way_links(settings)

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

    def learn_weights(self) -> None:
        """CGL among all whose heads are known; neighbours without one keep their weight."""
        self.new_heads.clear()
        known = {
            peer: knowledge
            for peer, knowledge in self.known.items()
            if knowledge.head is not None and (peer in self.shares or self.is_peer(peer))
        }
        heads = {peer: each.head.numpy() for peer, each in known.items() if each.head is not None}
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
        head, classes = self.part(self.params, "head").numpy(), self.compute.classes
        samples = {peer: self.known[peer].samples for peer in heads}
        return learn_weights(before, head, heads, self.samples, samples, classes, self.settings.graph).peers

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

    @property
    def heads_wanted(self) -> int:
        """New heads that it takes to learn the weights."""
        return max(1, math.ceil(self.settings.new_heads * len(self.shares)))

    def mix(self) -> None:
        """xi_i <- w_ii xi_i + sum_j w_ij xi_j with the latest of each neighbour, and xi_i for one without."""
        weighted: list[tuple[float, Knowledge]] = []
        for peer, share in self.shares.items():
            knowledge = self.known.get(peer)
            if knowledge is not None:
                age_s = self.now - knowledge.time
                self.observe("staleness", age_s)
                weighted.append((share * self.discount(age_s), knowledge))
        kept = 1.0 - sum([weight for weight, _ in weighted])
        for name in self.mixed:
            terms = [(kept, self.part(self.params, name))]
            terms += [(weight, getattr(knowledge, name)) for weight, knowledge in weighted]
            self.params = self.with_part(self.params, name, mix(terms))

    def discount(self, age_s: float) -> float:
        """How much of its weight a neighbour has whose knowledge is so old."""
        half_life_s = self.settings.half_life
        return 1.0 if half_life_s is None else 0.5 ** (age_s / half_life_s)
