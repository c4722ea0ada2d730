"""Whom a client of SCooL asks, and what it answers to others, whatever messages are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from actors.message import PeerUnavailable, RemoteError
from protocols.framework import learner
from protocols.framework.vectors import Vector
from protocols.scool.acquaintances import Acquaintance, relative_pace
from protocols.scool.attention import first_encoder, sketch
from protocols.scool.messages import Beliefs, Consultation, Opinion
from protocols.scool.priors import AttentionPrior, BlockPrior, MixedPrior, Prior
from protocols.scool.settings import SCooLSettings
from protocols.shared.allowance import GradientAllowance

LOSS_SHARE = 1 / 3
"""Of a gradient, that a loss costs on as many samples."""
ATTEMPTS = 4
"""Asynchronous: how often a question is sent before it is given up; the next iteration has a newer one."""


@dataclass(frozen=True)
class Publication:
    """What a client answers with: its progress after so many `iterations`, and a sketch of its update."""

    progress: Vector | None
    iterations: int
    round: int
    time: float
    degree: int
    sketch: Vector | None


class Consulting(learner.Learner):
    """A client that asks its peers what they make of its model, and tells them what it makes of theirs."""

    settings: SCooLSettings
    round = 0

    def __init__(
        self, name: str, surroundings: learner.Surroundings, compute: learner.Compute, settings: SCooLSettings
    ) -> None:
        super().__init__(name, surroundings, compute, settings)
        self.known: dict[str, Acquaintance] = {}
        self.left: dict[str, float] = {}  # peers not kept, with what spoke for them
        self.allowance = GradientAllowance(settings.gradients_when_behind)
        self.published: tuple[Publication, ...] = ()  # of the last two rounds
        self.news = asyncio.Event()
        self.began_s, self.iterations_before = 0.0, 0
        self.wait_at_first(settings.patience)
        self.prior = self.make_prior()

    def make_prior(self) -> Prior | None:
        """What this client holds of the graph; None where its weights are fixed."""
        settings = self.settings
        match settings.prior:
            case "sbm":
                return BlockPrior(settings, self.rng)
            case "mmsbm":
                return MixedPrior(settings, self.rng)
            case "attention":
                common = np.random.Generator(np.random.Philox(self.surroundings.shared_seed))
                self.signs = self.vector(common.choice([-1.0, 1.0], size=self.params.shape))
                return AttentionPrior(settings, first_encoder(settings.sketch, common))
        return None

    async def run(self) -> None:
        self.began_s, self.iterations_before = self.now, self.iterations
        self.known.clear()  # of a life before: what peers did since must not count as one step
        self.allowance.earn(None, self.opinion_cost * len(self.peers))
        self.publish(self.iterations, self.round - 1)
        await super().run()
        self.news.set()  # whoever waits for a later round gets the last one

    def acquaintance(self, peer: str) -> Acquaintance:
        """What is known of `peer`."""
        return self.known.setdefault(peer, Acquaintance())

    def peer_changed(self, peer: str, up: bool) -> None:
        """One that is gone is forgotten, and met anew if it comes back."""
        super().peer_changed(peer, up)
        if not up:
            self.known.pop(peer, None)
            self.left.pop(peer, None)
            if self.prior is not None:
                self.prior.forget(peer)

    # --- what others are told -------------------------------------------------------------------------------

    def own_share(self) -> Vector | None:
        """What others need of this client's training now."""
        raise NotImplementedError

    def publish(self, iterations: int, number: int, model: Vector | None = None) -> None:
        """From now on others are answered with this, after so many iterations, in round `number`.

        model: the present one, by default `params`, of which attention shows a sketch.
        """
        drawn = None
        if isinstance(self.prior, AttentionPrior):
            change = (self.params if model is None else model) - self.compute.initial()
            drawn = self.apply(sketch, change, self.signs, width=self.settings.sketch)
        latest = Publication(self.own_share(), iterations, number, self.now, len(self.peers), drawn)
        self.published = (*self.published[-1:], latest)
        self.news.set()
        self.news = asyncio.Event()

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case Consultation():
                self.listen(sender, message.beliefs)
                self.acquaintance(sender).met(message.time, message.iterations)
                if message.round > self.round + 1:
                    self.round = message.round  # the others went on without this client
                return self.spawn(self.answer(message, sender))  # a loss holds up no other message
        return None

    def heard(self, message: object, sender: str) -> bool:
        done = super().heard(message, sender)
        if self.is_peer(sender):
            self.acquaintance(sender).heard_s = self.now
        return done

    def listen(self, peer: str, beliefs: Beliefs) -> None:
        """Remember what a peer believes."""
        missing = beliefs.sketch is None and isinstance(self.prior, AttentionPrior)
        if self.prior is not None and self.is_peer(peer) and not missing:
            self.prior.hear(peer, beliefs)

    async def answer(self, message: Consultation, sender: str) -> Opinion:
        """Judge a model, and say how far this client has come; in rounds once it has come that far."""
        if self.settings.mode == "synchronous":
            while not self.finished and self.published[-1].round < message.round:
                await self.news.wait()
            fitting = [each for each in self.published if each.round == message.round]
        else:
            fitting = []
        latest = (fitting or self.published)[-1]
        if self.finished and not fitting:  # it takes part in any round, with what it has
            latest = replace(latest, progress=self.own_share(), round=max(latest.round, message.round))
        loss = gradient = None
        if message.params is not None and (self.has_time or self.finished):
            self.allowance.spend(self.opinion_cost)
            loss = await self.loss(message.params, on=self.settings.judged_on)
            if self.settings.cross_gradients == "exact":
                gradient = await self.gradient(message.params)
        return Opinion(
            loss,
            gradient,
            latest.progress,
            latest.iterations,
            latest.round,
            latest.degree,
            latest.time,
            self.beliefs(sender, latest.sketch),
        )

    def beliefs(self, peer: str, drawn: Vector | None) -> Beliefs:
        """What `peer` needs to know of this client's part of the posterior."""
        if self.prior is None:
            return Beliefs(0.0)
        return replace(self.prior.told(peer), sketch=drawn)

    # --- what this client asks ------------------------------------------------------------------------------

    def targets(self) -> list[str]:
        """The peers that this client talks to: all, or those that it has kept and who are new."""
        return [peer for peer in self.peers if peer not in self.left]

    def asked_now(self) -> list[str]:
        """Those to ask in this iteration."""
        ready = []
        for peer in self.targets():
            known = self.acquaintance(peer)
            known.rests = max(0, known.rests - 1)
            if not (known.asking or known.rests):
                ready.append(peer)
        limit = self.settings.consulted
        if limit is None or len(ready) <= limit:
            return ready
        return sorted([ready[k] for k in self.rng.permutation(len(ready))[:limit].tolist()])

    async def consult(self, peer: str, model: Vector | None, attempts: int | None) -> None:
        """Ask one peer."""
        known = self.acquaintance(peer)
        known.asking = True
        beliefs = self.beliefs(peer, self.published[-1].sketch)
        question = Consultation(model, beliefs, self.round, self.iterations + 1, self.now)
        try:
            opinion = await self.ask(peer, question, timeout=self.settings.patience, attempts=attempts)
            known.met(opinion.time, opinion.iterations)
            known.answered(opinion)
            self.listen(peer, opinion.beliefs)
        except PeerUnavailable:
            if self.now - max(known.heard_s, self.began_s) >= self.settings.patience:
                self.suspect(peer)
        except RemoteError:
            self.suspect(peer)
        finally:
            known.asking = False

    def choose(self, evidence: Mapping[str, float]) -> None:
        """Keep those peers for which most speaks; take some back if there are too few."""
        share = self.settings.keep
        if share is None or self.prior is None or self.iterations < self.settings.keep_after:
            return
        wanted = max(1, round(share * len(self.peers)))
        ranked = sorted(evidence, key=lambda peer: (-evidence[peer], peer))
        for peer in ranked[wanted:]:
            self.left[peer] = evidence[peer]
        back = sorted(self.left, key=lambda peer: (-self.left[peer], peer))
        for peer in back[: max(0, wanted - len(self.targets()))]:
            del self.left[peer]
            self.known.pop(peer, None)  # what it did since it was left must not count as one step

    # --- the time that it has for others --------------------------------------------------------------------

    @property
    def opinion_cost(self) -> float:
        """What an answer costs, in gradients."""
        batches = 1 if self.settings.judged_on == "batch" else self.compute.steps_per_epoch
        return LOSS_SHARE * batches + (self.settings.cross_gradients == "exact")

    @property
    def has_time(self) -> bool:
        """Whether this client has time for one more answer; in rounds all wait for the slowest anyway."""
        return self.settings.mode == "synchronous" or self.allowance.suffices

    def earn(self) -> None:
        """An iteration is over, which allows for some work for others."""
        duration_s = self.now - self.began_s
        pace = None
        if duration_s:
            done = self.iterations + 1 - self.iterations_before
            rates = [self.acquaintance(peer).rate for peer in self.peers]
            pace = relative_pace(done / duration_s, rates)
        self.allowance.earn(pace, self.opinion_cost * len(self.targets()))
