"""Federated averaging: a server sends the global model to clients, they train, it averages what comes back.

McMahan et al., "Communication-efficient learning of deep networks from decentralized data" (2017),
algorithm 1:

    each round: S <- max(1, floor(C m)) random clients of m
                x_i <- E local epochs from x, for i in S
                x <- sum_{i in S} n_i x_i / sum_{i in S} n_i

A client that has not answered after `patience` is left out of the round. A client's model, as it is
evaluated, is the last global model that it received.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors.settings.quantities import Weighing
from protocols.framework.vectors import Vector, mix
from protocols.shared.server_rounds import RoundClient, RoundServer, RoundSettings, RoundTask, shares


@dataclass(frozen=True)
class Assignment(RoundTask):
    """Train from these parameters."""

    params: Vector
    round: int


@dataclass(frozen=True)
class Contribution:
    """A client's trained parameters and the number of samples they were trained on."""

    params: Vector
    samples: int


@dataclass(frozen=True)
class GlobalModel:
    """The new global model, for clients that did not take part in the round."""

    params: Vector


def averaged(answers: Mapping[str, Contribution], weights: Weighing = "samples") -> Vector:
    """The average of the clients' parameters."""
    received = list(answers.values())
    parts = shares([answer.samples for answer in received], weights)
    return mix([(share, answer.params) for share, answer in zip(parts, received, strict=True)])


class FedAvgSettings(RoundSettings):
    """A server averages what its clients have trained."""


class FedAvgServer(RoundServer):
    """Averages whole models."""

    def task(self, client: str, number: int) -> RoundTask:
        return Assignment(self.params, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        self.params = averaged(answers)

    def news(self, client: str) -> object | None:
        return GlobalModel(self.params)


class FedAvg(RoundClient):
    """A client of federated averaging."""

    Settings = FedAvgSettings
    server = FedAvgServer

    async def work(self, task: Any) -> object:
        self.params = task.params
        return Contribution(await self.trained(task.params), self.samples)

    def learn(self, news: GlobalModel) -> None:
        self.params = news.params
