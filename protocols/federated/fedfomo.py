"""FedFomo: each client mixes the models that help its own validation loss, in proportion to how much they do.

Zhang, Sapra, Fidler, Yeung and Alvarez, "Personalized federated learning with first order model
optimization" (2021). A server keeps the last model theta_n of each client. In a round client i, whose model
was theta before its last training, receives M others' models, and with its loss L_i on held-back samples

    w_n = max(0, (L_i(theta) - L_i(theta_n)) / ||theta_n - theta||)     its own last model included   (eq. 4)
    theta_i <- theta + sum_n w_n (theta_n - theta) / sum_n w_n                                        (eq. 5)

and trains it for E local epochs. The server adds w to the affinities P_in, by which it chooses the next M:
those of the largest, or with probability `epsilon` any.

The paper's text was not at hand: this follows general knowledge of it. In particular epsilon is constant
here. If no model is better than theta, theta is what a client trains again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from actors.settings.quantities import Count
from protocols.framework.mathematics import epsilon_greedy
from protocols.framework.requirements import ProtocolSettings, Requirement, held_back
from protocols.framework.vectors import Vector, mix
from protocols.shared.judging import losses_of
from protocols.shared.server_rounds import RoundClient, RoundServer, RoundSettings, RoundTask


@dataclass(frozen=True)
class OthersModels(RoundTask):
    """Mix these models with the own one, and train."""

    models: dict[str, Vector]
    round: int


@dataclass(frozen=True)
class MixedAndTrained:
    """A client's trained model, and the weights that others' had in it before the training."""

    params: Vector
    weights: dict[str, float]


class FedFomoSettings(RoundSettings):
    """Clients mix the models that improve their validation loss, and train what comes of it."""

    models: Count = 5
    """Others' models that a client receives in a round (M)."""
    epsilon: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Share of these that are drawn at random, instead of those of the largest affinity."""
    losses_on: Literal["validation", "train"] = "validation"
    """By which of the own samples models are compared: those held back (`data.validation_share`), or all that
    are trained on, of which the own model has an advantage."""


def first_order_weights(before: float, losses: Sequence[float], distances: Sequence[float]) -> list[float]:
    """Shares of 1 of models with these losses, so far away from one whose loss is `before` (eq. 4).

    All are 0 if none is better; a model that is no other, or that has no finite loss, weighs 0. From one
    without a finite loss there is no way to the others: all are 0.
    """
    gains = [
        max(0.0, before - loss) / distance if distance > 0 and loss < before < math.inf else 0.0
        for loss, distance in zip(losses, distances, strict=True)
    ]
    total = sum(gains)
    return [gain / total for gain in gains] if total > 0 else gains


class FedFomoServer(RoundServer):
    """Keeps everybody's last model, and who has helped whom."""

    settings: FedFomoSettings

    def begin(self) -> None:
        self.latest: dict[str, Vector] = {}
        self.affinities: dict[str, dict[str, float]] = {}

    def task(self, client: str, number: int) -> RoundTask:
        there = [peer for peer in self.peers if peer != client and peer in self.latest]
        mixed = [there[index] for index in self.rng.permutation(len(there)).tolist()]
        affinity = self.affinities.get(client, {})
        ranked = sorted(mixed, key=lambda peer: -affinity.get(peer, 0.0))  # equal ones in random order
        chosen = epsilon_greedy(ranked, self.settings.models, self.settings.epsilon, self.rng)
        return OthersModels({peer: self.latest[peer] for peer in chosen}, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        for client, answer in answers.items():
            self.latest[client] = answer.params
            affinity = self.affinities.setdefault(client, {})
            for peer, weight in answer.weights.items():
                affinity[peer] = affinity.get(peer, 0.0) + weight

    def news(self, client: str) -> object | None:
        """Nothing: what a round has brought comes with a client's next task."""
        return None


class FedFomo(RoundClient):
    """A client that mixes what helps it."""

    Settings = FedFomoSettings
    settings: FedFomoSettings
    server = FedFomoServer
    before: Vector | None = None
    """The client's model before the last training; None before the first."""

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        assert isinstance(settings, FedFomoSettings)
        return () if settings.alone else held_back(settings.losses_on)

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
        """The weights of those of `models` that are better than `before`."""
        on = self.settings.losses_on
        first, *others = await losses_of(self, (before, *models.values()), on)
        distances = [self.trainable(model - before).norm() for model in models.values()]
        shares = first_order_weights(first, others, [float(distance) for distance in distances])
        return {name: share for name, share in zip(models, shares, strict=True) if share > 0}
