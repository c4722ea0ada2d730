"""FedEM: all clients share a few models, and each client mixes them in different proportions.

Marfoq, Neglia, Bellet, Kameni and Vidal, "Federated multi-task learning under a mixture of distributions"
(2021), algorithms 1 and 2, with M common models theta_m, and client t's proportions pi_t:

    each round: the server sends all theta_m to the sampled clients t
                E-step:  q_t^i(m) ~ pi_tm exp(-loss(theta_m, sample i of t))                          (eq. 8)
                M-step:  pi_tm <- (1/n_t) sum_i q_t^i(m)                                              (eq. 9)
                         theta_tm <- E local epochs from theta_m on the losses weighted by q_t(m)     (eq. 10)
                theta_m <- sum_t n_t theta_tm / sum_t n_t

A client predicts with the theta_m that it received last, mixed by its pi_t. The models start with different
values (`protocols.shared.several_models`), and pi_t is uniform. A round takes M times the steps of federated
averaging.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from protocols.framework.search_space import LOCAL_STEPS, OneOf, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.shared.server_rounds import RoundClient
from protocols.shared.several_models import (
    LatestModels,
    SeveralModels,
    SeveralModelsServer,
    SeveralModelsSettings,
)


@dataclass(frozen=True)
class TrainedComponents:
    """Trained models of a client, in their order, and its number of samples."""

    models: tuple[Vector, ...]
    samples: int


class FedEMSettings(SeveralModelsSettings):
    """Average a few models, which each client mixes differently."""


def responsibilities(shares: Tensor, *losses: Tensor) -> tuple[Tensor, ...]:
    """Return new shares [M], and each model's responsibility for each sample [n], from M losses [n]."""
    joint = shares.clamp_min(torch.finfo(shares.dtype).tiny).log()[:, None] - torch.stack(losses)
    parts = joint.softmax(dim=0)
    return (parts.mean(dim=1), *parts.unbind())


class FedEMServer(SeveralModelsServer):
    """Server that averages each of the models."""

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        received: list[TrainedComponents] = list(answers.values())
        total = sum([answer.samples for answer in received])
        weights = [answer.samples / total for answer in received]
        self.models = tuple(
            [
                mix([(weight, answer.models[k]) for weight, answer in zip(weights, received, strict=True)])
                for k in range(len(self.models))
            ]
        )


class FedEM(RoundClient):
    """Client with its own mixture of the models."""

    Settings = FedEMSettings
    search_space = SearchSpace(
        "around three models; the paper's text was not available",
        {
            "models": OneOf((2, 3, 4)),
            "local_steps": LOCAL_STEPS,
        },
    )
    server = FedEMServer
    settings: FedEMSettings

    def setup(self) -> None:
        count = self.settings.models
        self.shares: Vector = self.vector([1.0 / count] * count)
        self.models: tuple[Vector, ...] = ()

    async def work(self, task: SeveralModels) -> TrainedComponents:
        self.models = task.models
        losses = [await self.loss(model, on="train", reduction="none") for model in task.models]
        self.shares, *parts = self.apply(responsibilities, self.shares, *losses)
        trained = []
        for model, part in zip(task.models, parts, strict=True):
            update = await self.train(self.steps_of_a_round, start=model, weights=part, fresh_optimizer=True)
            trained.append(model + update)
        return TrainedComponents(tuple(trained), self.samples)

    def learn(self, news: LatestModels) -> None:
        self.models = news.models

    def evaluated(self) -> Mapping[str, Vector | Sequence[tuple[float, Vector]]]:
        if not self.models:  # alone, or before its first task
            return super().evaluated()
        return {"mixture": list(zip(self.shares.numpy().tolist(), self.models, strict=True))}
