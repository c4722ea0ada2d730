"""One client's part of the posterior: the E-step, whom it goes on talking to, and the shared parameters."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.vectors import Scalar, Vector
from protocols.scool.attention import first_encoder
from protocols.scool.messages import Beliefs, PeerEvaluation, Shared
from protocols.scool.priors import AttentionPrior, BlockPrior, MixedPrior, Prior
from protocols.scool.settings import SCooLSettings
from protocols.shared.push_sum import Mass

RENEWED = 0.1
"""Share of a client's mass that its present numbers replace in an iteration."""
WORST = -1e6
"""log P(D_j | theta_i) of a model whose loss is no number."""
RESTS_MAX = 16
"""Iterations at most for which a peer that has nothing new is not asked."""


@dataclass
class PeerState:
    """One peer.

    `loss`: of a model of this client on the peer's data, the last that it told. `evaluation`: its last
    answer; `used`: the progress, and the iterations, of which this client has made use. `asking`: it is being
    asked. `asked`: how often it was so far, the first time in iteration `since` of this client. `rests`: for
    how many iterations it is not asked again, and `rest` how long the next rest is.
    """

    loss: float | Scalar | None = None
    gradient: Vector | None = None
    evaluation: PeerEvaluation | None = None
    used: tuple[Vector, int] | None = None
    asking: bool = False
    asked: int = 0
    since: int | None = None
    rests: int = 0
    rest: int = 1

    def answered(self, evaluation: PeerEvaluation) -> None:
        """Take note of an answer; one that brings nothing new is followed by a rest, each twice as long."""
        news = self.evaluation is None or evaluation.iterations != self.evaluation.iterations
        self.rest = 1 if news else min(2 * self.rest, RESTS_MAX)
        self.rests = 0 if news else self.rest
        if self.evaluation is None or evaluation.time >= self.evaluation.time:
            self.evaluation = evaluation
        self.loss = self.loss if evaluation.loss is None else evaluation.loss
        self.gradient = evaluation.gradient

    def new_progress(self) -> Vector | None:
        """How far the peer's own updates have gone since this was asked last; None for no news.

        So each of them counts once, however many messages were lost. At first it is what it did per
        iteration: a newcomer does not make up for all that the others did before.
        """
        if self.evaluation is None or self.evaluation.progress is None:
            return None
        progress, iterations = self.evaluation.progress, self.evaluation.iterations
        before, self.used = self.used, (progress, iterations)
        if before is None or iterations < before[1]:  # it is new, or has begun anew
            return progress / iterations if iterations else None
        return progress - before[0] if iterations > before[1] else None


class Posterior(Component):
    """The weights w_ij of one client's peers, and what it knows of these peers.

    waits: whether an iteration ends with the answers to its own questions.
    """

    def __init__(self, client: Client, settings: SCooLSettings, *, waits: bool) -> None:
        super().__init__(client)
        self.settings = settings
        self.waits = waits
        self.known: dict[str, PeerState] = {}
        self.left: dict[str, float] = {}  # peers not kept, with what spoke for them
        self.row: Mapping[str, float] = {}
        """w_ij of the peers that count now."""
        self.signs: Vector
        self.prior = self._make_prior()
        """None where the weights are fixed."""
        self.mass: Mass | None = None

    def _make_prior(self) -> Prior | None:
        settings, client = self.settings, self.client
        match settings.prior:
            case "sbm":
                return BlockPrior(settings, client.rng)
            case "mmsbm":
                return MixedPrior(settings, client.rng)
            case "attention":
                common = np.random.Generator(np.random.Philox(client.context.shared_seed))
                self.signs = client.vector(common.choice([-1.0, 1.0], size=client.params.shape))
                return AttentionPrior(settings, first_encoder(settings.sketch, common))
        return None

    @property
    def fixed(self) -> bool:
        """Whether the weights are given (Dirac prior)."""
        return self.prior is None

    @property
    def exact(self) -> bool:
        """Whether peers compute gradients of this client's model."""
        return self.settings.cross_gradients == "exact" and not self.fixed

    def peer(self, name: str) -> PeerState:
        """What is known of a peer."""
        return self.known.setdefault(name, PeerState())

    def targets(self) -> list[str]:
        """The peers that this client talks to: all, or those that it has kept and who are new."""
        return [peer for peer in self.client.peers if peer not in self.left]

    def peer_changed(self, peer: str, up: bool) -> None:
        """One that is gone is forgotten and weighs nothing from now on; it is met anew if it comes back."""
        if not up:
            self.known.pop(peer, None)
            self.left.pop(peer, None)
            if self.prior is not None:
                self.prior.forget(peer)
            self.row = {other: weight for other, weight in self.row.items() if other != peer}

    def listen(self, peer: str, beliefs: Beliefs) -> None:
        """Remember what a peer believes."""
        missing = beliefs.sketch is None and isinstance(self.prior, AttentionPrior)
        if self.prior is not None and self.client.is_peer(peer) and not missing:
            self.prior.hear(peer, beliefs)

    # --- E-step ---------------------------------------------------------------------------------------------

    async def infer(self, model: Vector, own_sketch: Vector | None) -> None:
        """New weights, by how the peers have evaluated this client's model."""
        if self.prior is None:
            return
        own = 0.0
        if self.prior.judges_itself:
            own = self.likelihood(await self.client.loss(model, on=self.settings.judged_on))
        if isinstance(self.prior, AttentionPrior):
            assert own_sketch is not None
            self.prior.sketch = own_sketch.numpy().astype(float)
        likelihoods = {}
        for peer in self.targets():
            known = self.peer(peer)
            if known.loss is not None:
                known.loss = float(known.loss)
                likelihoods[peer] = self.likelihood(known.loss)
        evidence = self.prior.infer(likelihoods, own)
        self._choose(evidence)
        self.row = {peer: self.prior.weights[peer] for peer in evidence if peer not in self.left}

    def likelihood(self, loss: float | Scalar) -> float:
        """log P(D_j | theta_i) per sample, beside that of the null model."""
        value = float(loss)
        chance = self.settings.null_model == "chance"
        against = math.log(max(1, self.client.compute.classes)) if chance else 0.0
        return max(WORST, against - value) if math.isfinite(value) else WORST

    def _choose(self, evidence: Mapping[str, float]) -> None:
        """Keep those peers for which most speaks; take some back if there are too few.

        Nothing speaks for one that was asked for as long, and has yet to evaluate this client's model.
        """
        share, after, iterations = self.settings.keep, self.settings.keep_after, self.client.iterations
        asked = iterations + self.waits  # so many times, if always all
        if share is None or self.prior is None or asked < after:
            return
        for peer in self.targets():
            since = self.peer(peer).since
            if peer not in evidence and since is not None and iterations - since >= max(after, 1):
                self.left[peer] = -math.inf
        wanted = max(1, round(share * len(self.client.peers)))
        ranked = sorted(evidence, key=lambda peer: (-evidence[peer], peer))
        for peer in ranked[wanted:]:
            self.left[peer] = evidence[peer]
        back = sorted(self.left, key=lambda peer: (-self.left[peer], peer))
        for peer in back[: max(0, wanted - len(self.targets()))]:
            del self.left[peer]
            self.known.pop(peer, None)  # what it did since it was left must not count as one step

    # --- what all clients estimate together -----------------------------------------------------------------

    def share(self) -> None:
        """Bring the own numbers in, learn from the average, and pass half of the mass on (push-sum)."""
        if self.prior is None:
            return
        client, targets, half = self.client, self.targets(), None
        numbers = self.prior.statistics() if self.settings.learn_prior else None
        if numbers is not None:
            self.mass = Mass(numbers, 1.0) if self.mass is None else self.mass.renewed(numbers, RENEWED)
            if client.iterations >= self.settings.learn_after:
                self.prior.learn(self.mass.average)
            if targets:
                half = self.mass = self.mass.half
        attentive = isinstance(self.prior, AttentionPrior)
        if targets and (half is not None or attentive):
            encoder, steps = None, 0
            if isinstance(self.prior, AttentionPrior):
                encoder, steps = self.prior.encoder.astype("float32"), self.prior.optimizer.steps
            chosen = targets[int(client.rng.integers(len(targets)))]
            numbers, weight = (None, 0.0) if half is None else (half.numbers, half.weight)
            client.tell(chosen, Shared(numbers, weight, encoder, steps))

    def merge(self, message: Shared) -> None:
        """Take in what a peer has passed on."""
        if message.numbers is not None:
            other = Mass(message.numbers, message.weight)
            self.mass = other if self.mass is None else self.mass.with_(other)
        if message.encoder is not None and isinstance(self.prior, AttentionPrior):
            self.prior.merge(message.encoder.astype(float), message.steps)
