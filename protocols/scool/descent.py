"""SCooL's M-step, and training: what a client makes of its own gradients and of its peers'."""

from collections.abc import Sequence

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.mathematics import metropolis_weights
from protocols.framework.vectors import Vector, mix
from protocols.scool.messages import PeerEvaluation
from protocols.scool.peer_evaluation import PeerEvaluations, steps_of
from protocols.scool.posterior import Posterior
from protocols.scool.settings import SCooLSettings

_STIFFNESS = 1e-3
"""The weight of a proximal term that stands for a constant gradient: a weak pull to a far point."""


class Descent(Component):
    """The M-step that all priors share."""

    def __init__(self, client: Client, settings: SCooLSettings, evaluations: PeerEvaluations) -> None:
        super().__init__(client)
        self.settings = settings
        self.evaluations = evaluations
        self.posterior: Posterior = evaluations.posterior

    @property
    def begins_with_answers(self) -> bool:
        """Whether the peers' part of a step must be known before the client trains."""
        return self.posterior.fixed or self.posterior.exact

    async def train(self, number: int) -> Vector:
        """The local steps of an iteration, of which others are told, in round `number`."""
        client, evaluations = self.client, self.evaluations
        update = await client.train(steps_of(client, self.settings))
        evaluations.progress_made = evaluations.progress_made + update
        evaluations.publish(client.iterations + 1, number, client.params + update)
        return update

    def combined(self, update: Vector) -> Vector:
        """theta_i and its own update, with those that the peers have made of their models (eq. 33)."""
        client, received = self.client, []
        for peer, weight in self.posterior.row.items():
            known = self.posterior.known[peer]
            new = known.new_progress()
            if new is not None and known.evaluation is not None:
                client.observe("staleness", client.now - known.evaluation.time)
                received.append((weight, new))
        own, factor = self._scales([weight for weight, _ in received])
        return mix([(1.0, client.params), (own, update)] + [(factor * w, new) for w, new in received])

    async def descend(self, oldest: int | None) -> None:
        """Local steps along the own gradient and what the peers add to it.

        oldest: with fixed weights, the round of the oldest models that are mixed; None for any.
        """
        client, posterior, steps = self.client, self.posterior, steps_of(self.client, self.settings)
        if posterior.fixed:
            update = await client.train(steps)
            client.params = mix([*self._mixture(oldest), (1.0, update)])
            return
        gradients = [
            (weight, known.gradient)
            for peer, weight in posterior.row.items()
            if (known := posterior.known[peer]).gradient is not None
        ]
        own, factor = self._scales([weight for weight, _ in gradients])
        start, own = client.params, max(own, 1e-6)
        proximal = []
        if gradients:
            away = mix([(factor * weight / own / _STIFFNESS, gradient) for weight, gradient in gradients])
            proximal = [(_STIFFNESS, start - away)]
        for peer in posterior.row:
            posterior.known[peer].gradient = None
        update = await client.train(steps, proximal=proximal)
        client.params = client.params + own * update

    def _scales(self, weights: Sequence[float]) -> tuple[float, float]:
        """The factor of the own gradient, and the one by which the peers' weights are multiplied."""
        prior = self.posterior.prior
        if self.settings.aggregation == "sum" or prior is None:
            return 1.0, 1.0
        total = prior.itself + sum(weights)
        return prior.itself / total, 1 / total

    def _mixture(self, oldest: int | None) -> list[tuple[float, Vector]]:
        """Eq. 16: the models of the client and its peers, by the fixed weights."""
        present: dict[str, PeerEvaluation] = {}
        for peer in self.client.peers:
            evaluation = self.posterior.known[peer].evaluation
            if evaluation is not None and (oldest is None or evaluation.round >= oldest):
                present[peer] = evaluation
        degrees = {peer: evaluation.degree for peer, evaluation in present.items()}
        weights = metropolis_weights(self.evaluations.published[-1].degree, degrees)
        models = [(weights[peer], each.progress) for peer, each in present.items()]
        kept = 1.0 - sum(weights.values())
        return [(kept, self.client.params), *[(w, model) for w, model in models if model is not None]]
