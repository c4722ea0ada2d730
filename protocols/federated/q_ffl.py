"""q-FFL: federated learning in which clients with a larger loss count more, by the algorithm q-FedAvg.

Li, Sanjabi, Beirami and Smith, "Fair resource allocation in federated learning" (ICLR 2020): the objective

    min_w  sum_k p_k / (q + 1) F_k(w)^(q + 1)

equals the objective of federated averaging for q = 0; a larger q makes the losses more equal. Algorithm 2,
q-FedAvg, with w_k the result of client k's E local epochs of SGD from w with the learning rate eta = 1/L:

    delta_w_k = L (w - w_k)
    Delta_k   = F_k(w)^q delta_w_k
    h_k       = q F_k(w)^(q - 1) ||delta_w_k||^2 + L F_k(w)^q
    w        <- w - sum_k Delta_k / sum_k h_k

1/sum h_k is the step that fits the curvature of F^(q + 1), if L fits the curvature of F; so only q has to be
chosen. F_k(w) is the mean loss over all of the client's training samples, which costs the client a forward
pass.

Differences from the paper: there a round's clients are drawn with the probabilities p_k (n_k/n in its
experiments); here they are drawn uniformly, and Delta_k and h_k have the factor p_k (`weights`), which is the
same objective. A loss of exactly 0 counts as 1e-10, as in the authors' code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actors.settings.quantities import Weighing, Weight
from protocols.framework.requirements import (
    ProtocolSettings,
    Requirement,
    constant_rate_requirement,
    plain_sgd_requirements,
)
from protocols.framework.search_space import LOCAL_STEPS, OneOf, SearchSpace
from protocols.framework.vectors import Scalar, Vector, mix
from protocols.shared.server_rounds import RoundClient, RoundServer, RoundSettings, shares

_LEAST_LOSS = 1e-10


@dataclass(frozen=True)
class FairStep:
    """Delta_k / L and h_k / L of a client, and its number of samples."""

    delta: Vector
    curvature: Scalar
    samples: int


class QFFLSettings(RoundSettings):
    """Weigh the clients' updates by their losses."""

    q: Weight = 1.0
    """Strength of fairness: 0 is federated averaging, and larger values give large losses more weight."""
    weights: Weighing = "samples"
    """Factors p_k of the objective: by the clients' numbers of samples, or equal."""


def fair_step(
    update: Vector, length: Scalar, loss: Scalar, q: float, learning_rate: float
) -> tuple[Vector, Scalar]:
    """Return Delta_k / L and h_k / L of an update w_k - w [P]; length: its norm; learning_rate: 1/L."""
    loss = loss + _LEAST_LOSS
    steepness = loss**q
    return update * (-1.0 * steepness), steepness + (q / learning_rate) * loss ** (q - 1) * length**2


class QFFLServer(RoundServer):
    """Server that steps by the sum of all clients' Delta_k over the sum of their h_k."""

    settings: QFFLSettings

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        received: list[FairStep] = list(answers.values())
        weights = shares([answer.samples for answer in received], self.settings.weights)
        pairs = list(zip(weights, received, strict=True))
        curvature = sum([answer.curvature * weight for weight, answer in pairs], 0.0)
        self.params = self.params - mix([(weight, answer.delta) for weight, answer in pairs]) / curvature


class QFFL(RoundClient):
    """Client that reports its loss."""

    Settings = QFFLSettings
    search_space = SearchSpace(
        "values of q from 0.001 to 10, as in Li et al. (2020); the text was not available",
        {
            "q": OneOf((0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: QFFLSettings
    server = QFFLServer

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        problem = "uses the learning rate as the inverse of the loss's curvature"
        return (*plain_sgd_requirements(problem), constant_rate_requirement(problem))

    async def work(self, task: Any) -> object:
        self.params = task.params
        loss = await self.loss(task.params, on="train")
        update = await self.trained(task.params) - task.params
        length = self.trainable(update).norm()
        delta, curvature = fair_step(update, length, loss, self.settings.q, self.compute.learning_rate)
        return FairStep(delta, curvature, self.samples)
