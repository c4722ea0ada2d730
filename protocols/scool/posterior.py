"""One client's part of the posterior: the E-step, whom it goes on talking to, and the shared parameters."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.per_peer import PerPeer
from protocols.framework.vectors import Scalar, Vector
from protocols.scool.messages import Beliefs, PeerEvaluation, Shared
from protocols.scool.priors import PRIORS
from protocols.scool.settings import SCooLSettings
from protocols.shared.push_sum import Mass

RENEWED = 0.1
"""Share of a client's mass that its present numbers replace in an iteration."""
WORST = -1e6
"""log P(D_j | theta_i) of a model whose loss is no number."""
PAUSE_MAX = 16
"""Iterations at most for which a peer that has nothing new is not asked."""


@dataclass
class PeerState:
    """What a client knows of one peer.

    `loss`: of this client's model on the peer's data, as the peer told last. `evaluation`: its last answer.
    `progress_used`: the progress and number of iterations that this client has made use of. `asking`: a
    question to it is open. `times_asked`: how often it was asked, first in iteration `first_asked` of this
    client. `pause_left`: iterations for which it is not asked; `next_pause`: length of the next such pause.
    """

    loss: float | Scalar | None = None
    gradient: Vector | None = None
    evaluation: PeerEvaluation | None = None
    progress_used: tuple[Vector, int] | None = None
    asking: bool = False
    times_asked: int = 0
    first_asked: int | None = None
    pause_left: int = 0
    next_pause: int = 1

    def answered(self, evaluation: PeerEvaluation) -> None:
        """Keep an answer. One that brings nothing new starts a pause, each twice as long as the last one."""
        news = self.evaluation is None or evaluation.iterations != self.evaluation.iterations
        self.next_pause = 1 if news else min(2 * self.next_pause, PAUSE_MAX)
        self.pause_left = 0 if news else self.next_pause
        if self.evaluation is None or evaluation.time >= self.evaluation.time:
            self.evaluation = evaluation
        self.loss = self.loss if evaluation.loss is None else evaluation.loss
        self.gradient = evaluation.gradient

    def take_new_progress(self) -> Vector | None:
        """The sum of the peer's own updates since the last call; None if there are none.

        So each of them counts once, however many messages were lost. The first time it is their mean per
        iteration: a newcomer does not catch up with all that the others did before.
        """
        if self.evaluation is None or self.evaluation.progress is None:
            return None
        progress, iterations = self.evaluation.progress, self.evaluation.iterations
        before, self.progress_used = self.progress_used, (progress, iterations)
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
        self.known = PerPeer(client, PeerState)
        self.dropped = PerPeer[float](client)  # peers not kept, with the evidence for them
        self.row = PerPeer[float](client)
        """w_ij of the peers that count now."""
        self.prior = PRIORS[settings.prior](self.client, settings)
        self.mass: Mass | None = None

    @property
    def fixed(self) -> bool:
        """Whether the weights are given (Dirac prior)."""
        return self.prior.fixed

    @property
    def exact(self) -> bool:
        """Whether peers compute gradients of this client's model."""
        return self.settings.cross_gradients == "exact" and not self.fixed

    def targets(self) -> list[str]:
        """The peers that this client talks to: all, or those that it has kept and who are new."""
        return [peer for peer in self.client.peers if peer not in self.dropped]

    def listen(self, peer: str, beliefs: Beliefs) -> None:
        """Remember what a peer believes."""
        if self.client.is_peer(peer):
            self.prior.hear(peer, beliefs)

    # --- E-step ---------------------------------------------------------------------------------------------

    async def infer(self, model: Vector) -> None:
        """New weights, by how the peers have evaluated this client's model."""
        if self.fixed:
            return
        own = 0.0
        if self.prior.judges_itself:
            own = self.likelihood(await self.client.loss(model, on=self.settings.judged_on))
        likelihoods = {}
        for peer in self.targets():
            known = self.known[peer]
            if known.loss is not None:
                known.loss = float(known.loss)
                likelihoods[peer] = self.likelihood(known.loss)
        evidence = self.prior.infer(likelihoods, own)  # log odds (eqs. 18, 72), or log masses (eq. 29)
        self._choose(evidence)
        weights = self.prior.weights
        self.row.replace({peer: weights[peer] for peer in evidence if peer not in self.dropped})

    def likelihood(self, loss: float | Scalar) -> float:
        """log P(D_j | theta_i) per sample, minus that of the null model."""
        value = float(loss)
        chance = self.settings.null_model == "chance"
        against = math.log(max(1, self.client.compute.classes)) if chance else 0.0
        return max(WORST, against - value) if math.isfinite(value) else WORST

    def _choose(self, evidence: Mapping[str, float]) -> None:
        """Keep the peers with the most evidence (appendix C.1); take some back if there are too few.

        The evidence ranks peers as w_ij does, which is a sigmoid or a softmax of it.
        A peer that was asked for `keep_after` iterations without evaluating this model has no evidence.
        """
        share, after, iterations = self.settings.keep, self.settings.keep_after, self.client.iterations
        asked = iterations + 1 if self.waits else iterations  # so often, where none was ever left out
        if share is None or asked < after:
            return
        for peer in self.targets():
            first_asked = self.known[peer].first_asked
            if peer not in evidence and first_asked is not None and iterations - first_asked >= max(after, 1):
                self.dropped[peer] = -math.inf
        wanted = max(1, round(share * len(self.client.peers)))
        ranked = sorted(evidence, key=lambda peer: (-evidence[peer], peer))
        for peer in ranked[wanted:]:
            self.dropped[peer] = evidence[peer]
        back = sorted(self.dropped, key=lambda peer: (-self.dropped[peer], peer))
        for peer in back[: max(0, wanted - len(self.targets()))]:
            del self.dropped[peer]
            self.known.pop(peer, None)  # what it did since it was dropped must not count as one step

    # --- what all clients estimate together -----------------------------------------------------------------

    def learn_and_gossip(self) -> None:
        """Bring the own numbers in, learn from the average, and pass half of the mass on (push-sum)."""
        client, targets, half = self.client, self.targets(), None
        numbers = self.prior.statistics() if self.settings.learn_prior else None
        if numbers is not None:
            self.mass = Mass(numbers, 1.0) if self.mass is None else self.mass.renewed(numbers, RENEWED)
            if client.iterations >= self.settings.learn_after:
                self.prior.learn(self.mass.average)
            if targets:
                half = self.mass = self.mass.half
        encoder, steps = self.prior.gossiped()
        if targets and (half is not None or encoder is not None):
            chosen = targets[int(client.rng.integers(len(targets)))]
            numbers, weight = (None, 0.0) if half is None else (half.numbers, half.weight)
            client.tell(chosen, Shared(numbers, weight, encoder, steps))

    def merge(self, message: Shared) -> None:
        """Take in what a peer has passed on."""
        if message.numbers is not None:
            other = Mass(message.numbers, message.weight)
            self.mass = other if self.mass is None else self.mass.with_(other)
        if message.encoder is not None:
            self.prior.merge(message.encoder.astype(float), message.steps)
