"""FedFomo: each client mixes the models that reduce its validation loss, in proportion to the reduction.

Zhang, Sapra, Fidler, Yeung and Alvarez, "Personalized federated learning with first order model
optimization" (2021). A server keeps the last model theta_n of each client. In a round client i, whose model
was theta before its last training, receives M others' models, and with its loss L_i on held-out samples

    w_n = max(0, (L_i(theta) - L_i(theta_n)) / ||theta_n - theta||)     its own last model included   (eq. 4)
    theta_i <- theta + sum_n w_n (theta_n - theta) / sum_n w_n                                        (eq. 5)

and trains theta_i for E local epochs. The server adds w to the affinities P_in, by which it chooses the next
M: those with the largest affinity, or with probability `epsilon` random ones.

The paper's text was not available: this follows general knowledge of it. In particular epsilon is constant
here. If no model is better than theta, the client trains theta again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from actors.settings.base import require_defaults
from actors.settings.quantities import Count
from protocols.framework.mathematics import epsilon_greedy
from protocols.framework.requirements import ProtocolSettings, Requirement, held_out_requirement
from protocols.framework.search_space import LOCAL_STEPS, OneOf, Range, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.shared.judging import model_losses
from protocols.shared.server_rounds import RoundClient, RoundServer, RoundSettings, RoundTask


@dataclass(frozen=True)
class OthersModels(RoundTask):
    """Task to mix these models with the client's own, and train."""

    models: dict[str, Vector]
    round: int


@dataclass(frozen=True)
class MixedAndTrained:
    """Trained model of a client, and the weights of others' models in it before the training."""

    params: Vector
    weights: dict[str, float]


class FedFomoSettings(RoundSettings):
    """Mix the models that reduce the client's validation loss, and train the mixture."""

    models: Count = 5
    """Others' models that a client receives in a round (M)."""
    epsilon: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Share of these models that are drawn at random; the others have the largest affinity."""
    losses_on: Literal["validation", "train"] = "validation"
    """Samples on which models are compared: the held-out samples (`data.validation_share`), or all training
    samples, on which the client's own model has an advantage."""

    @model_validator(mode="after")
    def _results_come_with_tasks(self) -> FedFomoSettings:
        require_defaults(self, "the result of a round comes with a client's next task", "broadcast")
        return self


def first_order_weights(before: float, losses: Sequence[float], distances: Sequence[float]) -> list[float]:
    """Return each model's share, in proportion to its loss reduction per distance (eq. 4).

    losses: of the models. distances: from these models to theta, the client's model before its last training,
    whose loss is `before`.

    The share is 0 for a model at distance 0, and for one without a finite loss below `before`. If `before` is
    not finite, all shares are 0.
    """
    gains = [
        max(0.0, before - loss) / distance if distance > 0 and loss < before < math.inf else 0.0
        for loss, distance in zip(losses, distances, strict=True)
    ]
    total = sum(gains)
    return [gain / total for gain in gains] if total > 0 else gains


class FedFomoServer(RoundServer):
    """Server that keeps the last model of each client, and the affinities."""

    settings: FedFomoSettings

    def setup(self) -> None:
        self.latest: dict[str, Vector] = {}
        self.affinities: dict[str, dict[str, float]] = {}

    def task(self, client: str, number: int) -> RoundTask:
        present = [peer for peer in self.peers if peer != client and peer in self.latest]
        mixed = [present[index] for index in self.rng.permutation(len(present)).tolist()]
        affinity = self.affinities.get(client, {})
        ranked = sorted(mixed, key=lambda peer: -affinity.get(peer, 0.0))  # ties in random order
        chosen = epsilon_greedy(ranked, self.settings.models, self.settings.epsilon, self.rng)
        return OthersModels({peer: self.latest[peer] for peer in chosen}, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        for client, answer in answers.items():
            self.latest[client] = answer.params
            affinity = self.affinities.setdefault(client, {})
            for peer, weight in answer.weights.items():
                affinity[peer] = affinity.get(peer, 0.0) + weight

    def news(self, client: str) -> object | None:
        """Return None: the result of a round comes with a client's next task."""
        return None


class FedFomo(RoundClient):
    """Client that mixes the models that help it."""

    Settings = FedFomoSettings
    search_space = SearchSpace(
        "around 5 models and an epsilon of 0.3, coterie's defaults; the paper's text was not available",
        {
            "models": OneOf((2, 5, 10)),
            "epsilon": Range(0.0, 0.6),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: FedFomoSettings
    server = FedFomoServer
    before: Vector | None = None
    """Model of the client before the last training; None before the first."""

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        assert isinstance(settings, FedFomoSettings)
        return () if settings.alone else held_out_requirement(settings.losses_on)

    async def work(self, task: OthersModels) -> MixedAndTrained:
        weights: dict[str, float] = {}
        if self.before is not None:
            models = task.models | {self.name: self.params}
            weights = await self.helpful(self.before, models)
            moves = [(weight, models[name] - self.before) for name, weight in weights.items()]
            self.params = mix([(1.0, self.before), *moves])
        self.before = self.params
        self.params = await self.trained(self.params)
        return MixedAndTrained(self.params, {name: w for name, w in weights.items() if name != self.name})

    async def helpful(self, before: Vector, models: Mapping[str, Vector]) -> dict[str, float]:
        """Return the weights of those `models` whose loss is below the loss of `before`."""
        on = self.settings.losses_on
        first, *others = await model_losses(self, (before, *models.values()), on)
        distances = [self.trainable(model - before).norm() for model in models.values()]
        shares = first_order_weights(first, others, [float(distance) for distance in distances])
        return {name: share for name, share in zip(models, shares, strict=True) if share > 0}
