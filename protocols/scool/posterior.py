"""Part of the posterior of one client: the E-step, the choice of peers, and the shared parameters."""

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
from protocols.shared.push_sum import PushSumMass
from protocols.shared.safeguard import Safeguard

RENEWED = 0.1
"""Share of a client's mass that its present numbers replace in an iteration."""
WORST = -1e6
"""Value of log P(D_j | theta_i) for a model with a loss that is not finite."""
PAUSE_MAX = 16
"""Maximum number of iterations for which a peer with nothing new is not asked."""


@dataclass
class PeerState:
    """Knowledge of a client about one peer.

    `loss`: of this client's model on the peer's data, from the peer's last answer. `evaluation`: its last
    answer. `progress_used`: the progress and number of iterations that this client has used. `asking`: a
    request to the peer is unanswered. `times_asked`: how often the peer was asked, first in iteration
    `first_asked` of this client. `pause_left`: iterations in which the peer is not asked; `next_pause`:
    length of the last pause since there was news, 1 without a pause; the next pause is twice as long.
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
        """Keep an answer. One without news starts a pause, twice as long as the last, at most `PAUSE_MAX`."""
        news = self.evaluation is None or evaluation.iterations != self.evaluation.iterations
        self.next_pause = 1 if news else min(2 * self.next_pause, PAUSE_MAX)
        self.pause_left = 0 if news else self.next_pause
        if self.evaluation is None or evaluation.time >= self.evaluation.time:
            self.evaluation = evaluation
        self.loss = self.loss if evaluation.loss is None else evaluation.loss
        self.gradient = evaluation.gradient

    def take_new_progress(self) -> Vector | None:
        """Return the sum of the peer's own updates since the last call; None if there are none.

        Each update thus counts once, whatever messages were lost. The first call, and the first one after a
        restart of the peer, return the mean of its updates per iteration: a newcomer does not catch up with
        all earlier updates of the others.
        """
        if self.evaluation is None or self.evaluation.progress is None:
            return None
        progress, iterations = self.evaluation.progress, self.evaluation.iterations
        before, self.progress_used = self.progress_used, (progress, iterations)
        if before is None or iterations < before[1]:  # it is new, or has restarted
            return progress / iterations if iterations else None
        return progress - before[0] if iterations > before[1] else None


class Posterior(Component):
    """Weights w_ij of one client's peers, and its knowledge about these peers.

    waits: whether an iteration waits for the answers to its own requests.
    """

    def __init__(self, client: Client, settings: SCooLSettings, *, waits: bool) -> None:
        super().__init__(client)
        self.settings = settings
        self.waits = waits
        self.known = PerPeer(client, PeerState)
        self.dropped = PerPeer[float](client)  # peers not kept, with the evidence for them
        self.row = PerPeer[float](client)
        """Weights w_ij of the peers that count now."""
        self.prior = PRIORS[settings.prior](self.client, settings)
        self.mass: PushSumMass | None = None

    @property
    def fixed(self) -> bool:
        """True if the weights are given (Dirac prior)."""
        return self.prior.fixed

    @property
    def exact(self) -> bool:
        """True if peers compute gradients of this client's model."""
        return self.settings.cross_gradients == "exact" and not self.fixed

    def targets(self) -> list[str]:
        """Return the peers that this client communicates with: all, or the kept and the new ones."""
        return [peer for peer in self.client.peers if peer not in self.dropped]

    def listen(self, peer: str, beliefs: Beliefs) -> None:
        """Record the beliefs of a peer."""
        if self.client.is_peer(peer):
            self.prior.receive(peer, beliefs)

    # --- E-step ---------------------------------------------------------------------------------------------

    async def infer(self, model: Vector, safeguard: Safeguard | None = None) -> None:
        """Infer new weights from the peers' evaluations of this client's model.

        safeguard: the safeguard of a client without rounds. If it is active, the safeguard's evaluation of
        the model is reused here.
        """
        if self.fixed:
            return
        own = 0.0
        if self.prior.judges_itself:
            if safeguard is not None and safeguard.active:
                own = self.likelihood(await safeguard.loss_of(model))
            else:
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
        """Return log P(D_j | theta_i) per sample, minus that of the null model, if any; at least `WORST`."""
        value = float(loss)
        chance = self.settings.null_model == "chance"
        against = math.log(max(1, self.client.compute.classes)) if chance else 0.0
        return max(WORST, against - value) if math.isfinite(value) else WORST

    def _choose(self, evidence: Mapping[str, float]) -> None:
        """Keep the peers with the most evidence (appendix C.1); restore some if there are too few.

        The weights w_ij are a sigmoid or a softmax of the evidence, so both rank the peers equally. A peer
        that was asked for `keep_after` iterations without evaluating this model has no evidence.
        """
        share, after, iterations = self.settings.keep, self.settings.keep_after, self.client.iterations
        questions = iterations + 1 if self.waits else iterations  # to peers that were never left out
        if share is None or questions < after:
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
            self.known.pop(peer, None)  # its progress since it was dropped must not count as one step

    # --- shared parameters ----------------------------------------------------------------------------------

    def learn_and_gossip(self) -> None:
        """Add the client's statistics, learn from the average, and send a peer half the mass (push-sum).

        This requires `learn_prior` and a prior with statistics; learning begins after `learn_after`
        iterations. The message also contains the encoder, if the prior has one.
        """
        client, targets, half = self.client, self.targets(), None
        numbers = self.prior.statistics() if self.settings.learn_prior else None
        if numbers is not None:
            self.mass = (
                PushSumMass(numbers, 1.0) if self.mass is None else self.mass.renewed(numbers, RENEWED)
            )
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
        """Merge the numbers and the encoder that a peer has sent."""
        if message.numbers is not None:
            other = PushSumMass(message.numbers, message.weight)
            self.mass = other if self.mass is None else self.mass.with_(other)
        if message.encoder is not None:
            self.prior.merge(message.encoder.astype(float), message.steps)
