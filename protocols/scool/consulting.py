"""Whom a client of SCooL asks, what it answers to others, and whom it goes on talking to."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from actors.message import PeerUnavailable, RemoteError
from protocols.framework.vectors import Vector
from protocols.scool.acquaintances import Acquaintance
from protocols.scool.attention import first_encoder, sketch
from protocols.scool.messages import Beliefs, Consultation, Opinion
from protocols.scool.priors import AttentionPrior, BlockPrior, MixedPrior, Prior
from protocols.scool.settings import SCooLSettings
from protocols.shared.allowance import LOSS_SHARE, GradientAllowance
from protocols.shared.pace import relative_pace
from protocols.shared.patience import PatientLearner

ATTEMPTS = 2
"""Asynchronous: how often a question is sent before it is given up, after three estimated round trips; the
next iteration has a newer one."""
ASKED_SHARE, ASKED_LEAST = 0.05, 20
"""By default so many peers are asked in an iteration as take this share of the time of its training, but at
least so many (fewer if there are fewer)."""


@dataclass(frozen=True)
class Publication:
    """What a client answers with: its progress after so many `iterations`, and a sketch of its update.

    In rounds also what it believed, by peer, when that was made, and for how long (s) it had been `delayed`.
    """

    progress: Vector | None
    iterations: int
    round: int
    time: float
    degree: int
    sketch: Vector | None
    told: Mapping[str, Beliefs] = field(default_factory=dict)
    delayed: float = 0.0


class Consulting(PatientLearner):
    """A client that asks its peers what they make of its model, and tells them what it makes of theirs."""

    settings: SCooLSettings
    round = 0
    delayed = 0.0
    """In rounds: for how long (s) the last one waited for those that were late."""

    def begin(self) -> None:
        self.known: dict[str, Acquaintance] = {}
        self.left: dict[str, float] = {}  # peers not kept, with what spoke for them
        self.allowance = GradientAllowance(self.settings.gradients_when_behind)
        self.published: tuple[Publication, ...] = ()  # of the last two rounds
        self.news = asyncio.Event()
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
                common = np.random.Generator(np.random.Philox(self.context.shared_seed))
                self.signs = self.vector(common.choice([-1.0, 1.0], size=self.params.shape))
                return AttentionPrior(settings, first_encoder(settings.sketch, common))
        return None

    async def run(self) -> None:
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
        told: dict[str, Beliefs] = {}
        if self.settings.mode == "synchronous" and self.prior is not None:
            told = self.prior.told_all(self.peers)  # what is learned from now on is of the next round
        degree = len(self.peers)
        latest = Publication(
            self.own_share(), iterations, number, self.now, degree, drawn, told, self.delayed
        )
        self.published = (*self.published[-1:], latest)
        self.news.set()
        self.news = asyncio.Event()

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case Consultation():
                self.listen(sender, message.beliefs)
                self.acquaintance(sender).pace.met(message.time, message.iterations)
                return self.spawn(self.answer(message, sender))  # a loss holds up no other message
        return None

    def listen(self, peer: str, beliefs: Beliefs) -> None:
        """Remember what a peer believes."""
        missing = beliefs.sketch is None and isinstance(self.prior, AttentionPrior)
        if self.prior is not None and self.is_peer(peer) and not missing:
            self.prior.hear(peer, beliefs)

    async def answer(self, message: Consultation, sender: str) -> Opinion:
        """Judge a model, and say how far this client has come."""
        latest = self.published[-1]
        if self.finished:  # with what has come since
            latest = replace(latest, progress=self.own_share())
        return await self.opinion(message, sender, latest)

    async def opinion(self, message: Consultation, sender: str, latest: Publication) -> Opinion:
        """Judge a model, and tell what was published."""
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
            self.beliefs(sender, latest),
            answers=message.round,
            delayed=latest.delayed,
        )

    def beliefs(self, peer: str, latest: Publication) -> Beliefs:
        """What `peer` needs to know of this client's part of the posterior."""
        if self.prior is None:
            return Beliefs(None)
        told = latest.told.get(peer) or self.prior.told(peer)
        return replace(told, sketch=latest.sketch)

    # --- what this client asks ------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Training steps of an iteration."""
        return self.settings.local_steps or self.settings.local_epochs * self.compute.steps_per_epoch

    def targets(self) -> list[str]:
        """The peers that this client talks to: all, or those that it has kept and who are new."""
        return [peer for peer in self.peers if peer not in self.left]

    @property
    def asked_at_once(self) -> int:
        """How many peers are asked in an iteration at most."""
        if self.settings.consulted is not None:
            return self.settings.consulted
        # Each of as many asks this client in turn.
        return max(ASKED_LEAST, int(ASKED_SHARE * self.steps / self.opinion_cost))

    def asked_now(self) -> list[str]:
        """Those to ask in this iteration; of too many, those that were asked least often."""
        ready = []
        for peer in self.targets():
            known = self.acquaintance(peer)
            known.rests = max(0, known.rests - 1)
            if not (known.asking or known.rests):
                ready.append(peer)
        limit = self.asked_at_once
        if self.prior is not None and len(ready) > limit:
            mixed = [ready[k] for k in self.rng.permutation(len(ready)).tolist()]
            ready = sorted(sorted(mixed, key=lambda peer: self.known[peer].asked)[:limit])
        return ready

    def question(self, peer: str, model: Vector | None) -> Consultation:
        """What to ask a peer, after the iteration that ends now."""
        known = self.acquaintance(peer)
        known.asked += 1
        if known.since is None:
            known.since = self.iterations
        beliefs = self.beliefs(peer, self.published[-1])
        return Consultation(model, beliefs, self.round, self.iterations + 1, self.now)

    async def consult(self, peer: str, question: Consultation) -> None:
        """Ask one peer."""
        known = self.acquaintance(peer)
        known.asking = True
        try:
            opinion = await self.ask(peer, question, timeout=self.settings.patience, attempts=ATTEMPTS)
            self.note(peer, opinion)
        except PeerUnavailable:
            self.suspect_if_silent(peer)
        except RemoteError:
            self.suspect(peer)
        finally:
            known.asking = False

    def note(self, peer: str, opinion: Opinion) -> None:
        """Remember an answer."""
        known = self.acquaintance(peer)
        known.pace.met(opinion.time, opinion.iterations)
        known.answered(opinion)
        self.listen(peer, opinion.beliefs)

    def choose(self, evidence: Mapping[str, float]) -> None:
        """Keep those peers for which most speaks; take some back if there are too few.

        Nothing speaks for one that was asked for as long, and has yet to judge this client.
        """
        share, after = self.settings.keep, self.settings.keep_after
        asked = self.iterations + (self.settings.mode == "synchronous")  # so many times, if always all
        if share is None or self.prior is None or asked < after:
            return
        for peer in self.targets():
            since = self.acquaintance(peer).since
            if peer not in evidence and since is not None and self.iterations - since >= max(after, 1):
                self.left[peer] = -math.inf
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
        done = self.iterations + 1 - self.iterations_before
        paces = [self.acquaintance(peer).pace for peer in self.peers]
        pace = relative_pace(done, self.now - self.began_s, paces)
        self.allowance.earn(pace, self.opinion_cost * len(self.targets()))
