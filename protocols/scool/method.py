"""SCooL's iteration: training, the E-step, and the one M-step that all priors share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from protocols.framework.client import ProtocolSettings
from protocols.framework.mathematics import metropolis_weights
from protocols.framework.node import Requirement, common_start
from protocols.framework.vectors import Scalar, Vector, mix
from protocols.scool.messages import Opinion, Shared
from protocols.scool.priors import AttentionPrior
from protocols.scool.rounds import ConsultingRounds
from protocols.scool.settings import SCooLSettings
from protocols.shared.push_sum import Mass
from protocols.shared.two_forms import TwoForms

RENEWED = 0.1
"""Share of a client's mass that its present numbers replace in an iteration."""
WORST = -1e6
"""log P(D_j | theta_i) of a model whose loss is no number."""
_STIFFNESS = 1e-3
"""Of the pull that stands for a gradient that stays the same."""


class SCooL(TwoForms, ConsultingRounds):
    """SCooL with any of its priors, synchronous and asynchronous."""

    Settings = SCooLSettings

    def begin(self) -> None:
        super().begin()
        self.progress_made = self.params - self.params
        self.mass: Mass | None = None

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return (common_start("shared"),)

    @property
    def fixed(self) -> bool:
        """Whether the weights are given (Dirac prior)."""
        return self.prior is None

    @property
    def exact(self) -> bool:
        """Whether peers compute gradients of this client's model."""
        return self.settings.cross_gradients == "exact" and not self.fixed

    async def take_round(self) -> None:
        """One iteration of algorithm 1."""
        if self.fixed or self.exact:
            self.publish(self.iterations, self.round)
            await self.ask_all(self.judged(self.params))
            await self.infer(self.params)
            await self.descend()
        else:
            update = await self.train_on()
            await self.ask_all(self.judged(self.params + update))
            await self.infer(self.params + update)
            self.params = self.combined(update)
        self.share()
        rounds = [known.opinion.round for known in self.known.values() if known.opinion is not None]
        self.round = max([self.round + 1, *rounds])

    async def iterate(self) -> None:
        """Train, make use of what has come meanwhile, and ask again; nobody waits for anybody."""
        if self.fixed or self.exact:
            await self.infer(self.params)
            await self.descend()
            self.publish(self.iterations + 1, self.round)
        else:
            update = await self.train_on()
            await self.infer(self.params + update)
            self.params = self.combined(update)
        self.earn()
        for peer in self.asked_now():
            self.spawn(self.consult(peer, self.question(peer, self.judged(self.params))))
        self.share()

    async def train_on(self) -> Vector:
        """The local steps of an iteration, of which others are told."""
        update = await self.train(self.steps)
        self.progress_made = self.progress_made + update
        self.publish(self.iterations + 1, self.round, self.params + update)
        return update

    def own_share(self) -> Vector | None:
        if self.fixed:
            return self.params
        return None if self.exact else self.progress_made

    def peer_changed(self, peer: str, up: bool) -> None:
        """Who is gone weighs nothing, from now on and not only from the next inference on."""
        super().peer_changed(peer, up)
        if not up:
            self.row = {other: weight for other, weight in self.row.items() if other != peer}

    def judged(self, model: Vector) -> Vector | None:
        """What peers are asked to judge of a model."""
        return None if self.fixed else model

    # --- E-step ---------------------------------------------------------------------------------------------

    async def infer(self, model: Vector) -> None:
        """New weights, by what the peers made of this client's model."""
        if self.prior is None:
            return
        own = 0.0
        if self.prior.judges_itself:
            own = self.likelihood(await self.loss(model, on=self.settings.judged_on))
        if isinstance(self.prior, AttentionPrior):
            drawn = self.published[-1].sketch
            assert drawn is not None
            self.prior.sketch = drawn.numpy().astype(float)
        likelihoods = {}
        for peer in self.targets():
            known = self.acquaintance(peer)
            if known.loss is not None:
                known.loss = float(known.loss)
                likelihoods[peer] = self.likelihood(known.loss)
        evidence = self.prior.infer(likelihoods, own)
        self.choose(evidence)
        self.row = {peer: self.prior.weights[peer] for peer in evidence if peer not in self.left}

    row: Mapping[str, float] = {}
    """w_ij of the peers that count now."""

    def likelihood(self, loss: float | Scalar) -> float:
        """log P(D_j | theta_i) per sample, beside that of the null model."""
        value = float(loss)
        against = math.log(max(1, self.compute.classes)) if self.settings.null_model == "chance" else 0.0
        return max(WORST, against - value) if math.isfinite(value) else WORST

    # --- M-step ---------------------------------------------------------------------------------------------

    def combined(self, update: Vector) -> Vector:
        """theta_i and its own update, with those that the peers have made of their models (eq. 33)."""
        received = []
        for peer, weight in self.row.items():
            known = self.known[peer]
            new = known.new_progress()
            if new is not None and known.opinion is not None:
                self.observe("staleness", self.now - known.opinion.time)
                received.append((weight, new))
        own, factor = self.scales([weight for weight, _ in received])
        return mix([(1.0, self.params), (own, update)] + [(factor * w, new) for w, new in received])

    def scales(self, weights: Sequence[float]) -> tuple[float, float]:
        """What the own gradient counts, and by what the peers' weights are multiplied."""
        if self.settings.aggregation == "sum" or self.prior is None:
            return 1.0, 1.0
        total = self.prior.itself + sum(weights)
        return self.prior.itself / total, 1 / total

    async def descend(self) -> None:
        """Local steps along the own gradient and what the peers add to it."""
        if self.fixed:
            update = await self.train(self.steps)
            self.params = mix([*self.mixture(), (1.0, update)])
            return
        given = [
            (weight, known.gradient)
            for peer, weight in self.row.items()
            if (known := self.known[peer]).gradient is not None
        ]
        own, factor = self.scales([weight for weight, _ in given])
        start, own = self.params, max(own, 1e-6)
        pulls = []
        if given:
            # A weak pull from far away is a gradient that does not change on the way.
            away = mix([(factor * weight / own / _STIFFNESS, gradient) for weight, gradient in given])
            pulls = [(_STIFFNESS, start - away)]
        for peer in self.row:
            self.known[peer].gradient = None
        update = await self.train(self.steps, pulls=pulls)
        self.params = self.params + own * update

    def mixture(self) -> list[tuple[float, Vector]]:
        """Eq. 16: the models of the client and its peers, by the fixed weights."""
        present: dict[str, Opinion] = {}
        for peer in self.peers:
            opinion = self.acquaintance(peer).opinion
            old = self.settings.mode == "synchronous" and opinion is not None and opinion.round < self.round
            if opinion is not None and not old:
                present[peer] = opinion
        degrees = {peer: opinion.degree for peer, opinion in present.items()}
        weights = metropolis_weights(self.published[-1].degree, degrees)
        models = [(weights[peer], each.progress) for peer, each in present.items()]
        kept = 1.0 - sum(weights.values())
        return [(kept, self.params), *[(w, model) for w, model in models if model is not None]]

    # --- what all clients estimate together -----------------------------------------------------------------

    def share(self) -> None:
        """Bring the own numbers in, learn from the average, and pass half of the mass on (push-sum)."""
        if self.prior is None:
            return
        targets, half = self.targets(), None
        numbers = self.prior.statistics() if self.settings.learn_prior else None
        if numbers is not None:
            self.mass = Mass(numbers, 1.0) if self.mass is None else self.mass.renewed(numbers, RENEWED)
            if self.iterations >= self.settings.learn_after:
                self.prior.learn(self.mass.average)
            if targets:
                half = self.mass = self.mass.half
        attentive = isinstance(self.prior, AttentionPrior)
        if targets and (half is not None or attentive):
            encoder, steps = None, 0
            if isinstance(self.prior, AttentionPrior):
                encoder, steps = self.prior.encoder.astype("float32"), self.prior.optimizer.steps
            chosen = targets[int(self.rng.integers(len(targets)))]
            numbers, weight = (None, 0.0) if half is None else (half.numbers, half.weight)
            self.tell(chosen, Shared(numbers, weight, encoder, steps))

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case Shared(numbers, weight, encoder, steps):
                if numbers is not None:
                    other = Mass(numbers, weight)
                    self.mass = other if self.mass is None else self.mass.with_(other)
                if encoder is not None and isinstance(self.prior, AttentionPrior):
                    self.prior.merge(encoder.astype(float), steps)
                return None
        return await super().on_message(message, sender)

    # --- the learned graph ----------------------------------------------------------------------------------

    def weights(self) -> Mapping[str, float] | None:
        return None if self.fixed else self.row

    @property
    def weights_are_shares(self) -> bool:
        return self.settings.prior == "attention"
