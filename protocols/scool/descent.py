"""SCooL's M-step of the model: what a client makes of its own gradients and of its peers'."""

from abc import ABC, abstractmethod

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


class Descent(Component, ABC):
    """One client's theta_i in an iteration: the model that its peers judge, and the M-step of theta_i."""

    def __init__(self, client: Client, settings: SCooLSettings, evaluations: PeerEvaluations) -> None:
        super().__init__(client)
        self.settings = settings
        self.evaluations = evaluations
        self.posterior: Posterior = evaluations.posterior

    @abstractmethod
    async def model_to_judge(self, number: int) -> Vector:
        """The model that the peers judge in round `number`, trained first where the peers' updates are used.

        In rounds it also publishes what this client answers to peers that ask in this one.
        """

    @abstractmethod
    async def m_step(self, oldest: int | None) -> None:
        """The client's next model, by the weights of the posterior (eq. 10).

        oldest: with given weights, the round of the oldest models that may be mixed; None for any.
        """

    def _scales(self, weights: list[float]) -> tuple[float, float]:
        """The factor of the own gradient, and the one by which the peers' weights are multiplied."""
        if self.settings.aggregation == "sum":
            return 1.0, 1.0
        total = self.posterior.prior.own_weight + sum(weights)
        return self.posterior.prior.own_weight / total, 1 / total


class PeersUpdates(Descent):
    """First-order cross gradients: the peers' gradients of their own models stand for those of this client's.

    A client trains first, and shows its peers what it has come to.
    """

    async def model_to_judge(self, number: int) -> Vector:
        client, evaluations = self.client, self.evaluations
        self.update = await client.train(steps_of(client, self.settings))
        evaluations.progress_made = evaluations.progress_made + self.update
        evaluations.publish(client.iterations + 1, number, client.params + self.update)
        return client.params + self.update

    async def m_step(self, oldest: int | None) -> None:
        """theta_i and its own update, with those that the peers have made of their models (eq. 33)."""
        client, received = self.client, []
        for peer, weight in self.posterior.row.items():
            known = self.posterior.known[peer]
            new = known.take_new_progress()
            if new is not None and known.evaluation is not None:
                client.context.report(client.name, "staleness", client.now - known.evaluation.time)
                received.append((weight, new))
        own, factor = self._scales([weight for weight, _ in received])
        peers_updates = [(factor * weight, new) for weight, new in received]
        client.params = mix([(1.0, client.params), (own, self.update), *peers_updates])
        del self.update  # it has been used, and holding it would keep a sum from being computed in one go


class JudgedFirst(Descent):
    """Base of those for which the peers' answers come before the local steps."""

    async def model_to_judge(self, number: int) -> Vector:
        if self.posterior.waits:
            self.evaluations.publish(self.client.iterations, number)
        return self.client.params

    async def m_step(self, oldest: int | None) -> None:
        self.client.params = await self.descended(oldest)
        if not self.posterior.waits:
            self.evaluations.publish(self.client.iterations + 1, 0)

    @abstractmethod
    async def descended(self, oldest: int | None) -> Vector:
        """The client's model after its local steps, and with what the peers add to it."""


class GivenWeights(JudgedFirst):
    """The Dirac prior: eq. 16, which is D-PSGD."""

    async def descended(self, oldest: int | None) -> Vector:
        update = await self.client.train(steps_of(self.client, self.settings))
        return mix([*self._mixture(oldest), (1.0, update)])

    def _mixture(self, oldest: int | None) -> list[tuple[float, Vector]]:
        """The models of the client and its peers, by the fixed weights."""
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


class ExactGradients(JudgedFirst):
    """Cross gradients of this client's model, which the peers have computed at the beginning."""

    async def descended(self, oldest: int | None) -> Vector:
        client, posterior = self.client, self.posterior
        gradients = [
            (weight, known.gradient)
            for peer, weight in posterior.row.items()
            if (known := posterior.known[peer]).gradient is not None
        ]
        own, factor = self._scales([weight for weight, _ in gradients])
        own = max(own, 1e-6)  # the attention of a client to itself may be 0, and divides here
        proximal = []
        if gradients:
            # A pull c (x - (start - G/c)) is G + c (x - start), with a small c. In training the own gradient
            # weighs 1: so G is divided by its weight before, and the update is multiplied by it after.
            away = mix([(factor * weight / own / _STIFFNESS, gradient) for weight, gradient in gradients])
            proximal = [(_STIFFNESS, client.params - away)]
        for peer in posterior.row:
            posterior.known[peer].gradient = None
        update = await client.train(steps_of(client, self.settings), proximal=proximal)
        return client.params + own * update


def descent_of(client: Client, settings: SCooLSettings, evaluations: PeerEvaluations) -> Descent:
    """The M-step of the settings."""
    posterior = evaluations.posterior
    kind = GivenWeights if posterior.fixed else ExactGradients if posterior.exact else PeersUpdates
    return kind(client, settings, evaluations)
