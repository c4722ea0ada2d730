"""M-step of the model of SCooL: the combination of a client's own gradients and its peers' gradients."""

from abc import ABC, abstractmethod

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.mathematics import metropolis_weights
from protocols.framework.vectors import Vector, mix
from protocols.scool.messages import PeerEvaluation
from protocols.scool.peer_evaluation import PeerEvaluations, steps_per_iteration
from protocols.scool.posterior import Posterior
from protocols.scool.settings import SCooLSettings

_STIFFNESS = 1e-3
"""Weight of a proximal term that represents a constant gradient: a weak pull to a far point."""


class ThetaUpdate(Component, ABC):
    """Update of one client's theta_i in an iteration: the model that peers evaluate, and the M-step."""

    def __init__(self, client: Client, settings: SCooLSettings, evaluations: PeerEvaluations) -> None:
        super().__init__(client)
        self.settings = settings
        self.evaluations = evaluations
        self.posterior: Posterior = evaluations.posterior

    @abstractmethod
    async def model_to_judge(self, number: int) -> Vector:
        """Return the model that peers evaluate in round `number`.

        If the peers' updates are used, the client has already trained this model. In this case, and always in
        rounds, the method also publishes the client's answer to peers.
        """

    @abstractmethod
    async def m_step(self, oldest: int | None) -> Vector:
        """Return the client's next model, by the weights of the posterior (eq. 10).

        oldest: with given weights, the round of the oldest models that may be mixed; None for any.
        """

    def _scales(self, weights: list[float]) -> tuple[float, float]:
        """Return the factor of the client's own gradient, and the factor of the peers' weights."""
        if self.settings.aggregation == "sum":
            return 1.0, 1.0
        total = self.posterior.prior.own_weight + sum(weights)
        return self.posterior.prior.own_weight / total, 1 / total


class FirstOrderUpdate(ThetaUpdate):
    """First-order cross gradients: peers' gradients at their own models, instead of at this client's model.

    A client trains first, and sends its peers the trained model.
    """

    async def model_to_judge(self, number: int) -> Vector:
        client, evaluations = self.client, self.evaluations
        self.update = await client.train(steps_per_iteration(client, self.settings))
        evaluations.progress_made = evaluations.progress_made + self.update
        evaluations.publish(client.iterations + 1, number, client.params + self.update)
        return client.params + self.update

    async def m_step(self, oldest: int | None) -> Vector:
        """Return theta_i from the client's own update and the peers' updates of their models (eq. 33)."""
        client, received = self.client, []
        for peer, weight in self.posterior.row.items():
            known = self.posterior.known[peer]
            new = known.take_new_progress()
            if new is not None and known.evaluation is not None:
                client.context.report(client.name, "staleness", client.now - known.evaluation.time)
                received.append((weight, new))
        own, factor = self._scales([weight for weight, _ in received])
        peers_updates = [(factor * weight, new) for weight, new in received]
        mixed = mix([(1.0, client.params), (own, self.update), *peers_updates])
        del self.update  # it has been used, and holding it would prevent computing a sum in one call
        return mixed


class EvaluationFirstUpdate(ThetaUpdate):
    """Base of updates in which the peers' answers come before the local steps."""

    async def model_to_judge(self, number: int) -> Vector:
        if self.posterior.waits:
            self.evaluations.publish(self.client.iterations, number)
        return self.client.params

    async def m_step(self, oldest: int | None) -> Vector:
        self.client.params = await self.descended(oldest)
        if not self.posterior.waits:
            self.evaluations.publish(self.client.iterations + 1, 0)
        return self.client.params

    @abstractmethod
    async def descended(self, oldest: int | None) -> Vector:
        """Return the client's model after its local steps, combined with the peers' contributions."""


class FixedPriorUpdate(EvaluationFirstUpdate):
    """Dirac prior: eq. 16, which is D-PSGD."""

    async def descended(self, oldest: int | None) -> Vector:
        update = await self.client.train(steps_per_iteration(self.client, self.settings))
        return mix([*self._mixture(oldest), (1.0, update)])

    def _mixture(self, oldest: int | None) -> list[tuple[float, Vector]]:
        """Return the models of the client and its peers, with the fixed weights."""
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


class ExactGradientUpdate(EvaluationFirstUpdate):
    """Cross gradients at this client's model, which the peers have computed at the start of the iteration."""

    async def descended(self, oldest: int | None) -> Vector:
        client, posterior = self.client, self.posterior
        gradients = [
            (weight, known.gradient)
            for peer, weight in posterior.row.items()
            if (known := posterior.known[peer]).gradient is not None
        ]
        own, factor = self._scales([weight for weight, _ in gradients])
        own = max(own, 1e-6)  # the attention of a client to itself may be 0, and is a divisor here
        proximal = []
        if gradients:
            # A pull c (x - (start - G/c)) is G + c (x - start), with a small c. In training the client's own
            # gradient has weight 1: G is divided by its weight before, and the update multiplied by it after.
            away = mix([(factor * weight / own / _STIFFNESS, gradient) for weight, gradient in gradients])
            proximal = [(_STIFFNESS, client.params - away)]
        for peer in posterior.row:
            posterior.known[peer].gradient = None
        update = await client.train(steps_per_iteration(client, self.settings), proximal=proximal)
        return client.params + own * update


def make_descent(client: Client, settings: SCooLSettings, evaluations: PeerEvaluations) -> ThetaUpdate:
    """Return the M-step that the settings select."""
    posterior = evaluations.posterior
    kind = (
        FixedPriorUpdate if posterior.fixed else ExactGradientUpdate if posterior.exact else FirstOrderUpdate
    )
    return kind(client, settings, evaluations)
