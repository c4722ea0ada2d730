"""Part of the model that a server averages, while each client keeps the other part.

    each round: u_i <- u for the sampled clients i
                (u_i, v_i) <- E local epochs, of both at once
                u <- sum_i n_i u_i / sum_i n_i

u is the shared part (the head, or the backbone), v_i the part that client i keeps. Only u is sent. Until
there is an average, a client trains its own u_i. The average comes with the next task, so by default a model
is evaluated as the client trained it last, including its u_i; with `broadcast = "all"` the average is sent as
soon as it is made, and replaces u_i in evaluations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors.settings.quantities import Weighing
from protocols.framework.component import Component
from protocols.framework.vectors import Vector, mix
from protocols.shared.server_rounds import RoundClient, RoundServer, RoundSettings, RoundTask, shares


@dataclass(frozen=True)
class PartTask(RoundTask):
    """Task to train with this part; with None, the client keeps its own."""

    part: Vector | None
    round: int


@dataclass(frozen=True)
class TrainedPart:
    """Trained part of a client, and the number of samples it was trained on."""

    part: Vector
    samples: int


@dataclass(frozen=True)
class AveragePart:
    """New average of the part."""

    part: Vector


class AveragedPartSettings(RoundSettings):
    """Settings of a server that averages a part of its clients' models."""

    weights: Weighing = "samples"
    """Weights of clients in the average: by their numbers of samples, or equal."""


class AveragedPartServer(RoundServer):
    """Server that averages the shared part."""

    settings: AveragedPartSettings
    average: Vector | None = None
    """Last average."""

    def task(self, client: str, number: int) -> RoundTask:
        return PartTask(self.average, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        received: list[TrainedPart] = list(answers.values())
        weights = shares([answer.samples for answer in received], self.settings.weights)
        self.average = mix([(weight, answer.part) for weight, answer in zip(weights, received, strict=True)])

    def news(self, client: str) -> object | None:
        return None if self.average is None else AveragePart(self.average)


class SharedPart(Component):
    """Part of one client's model that a server averages: "head" or "backbone"."""

    def __init__(self, client: RoundClient, name: str) -> None:
        super().__init__(client)
        self.client: RoundClient
        self.name = name

    async def work(self, task: PartTask) -> TrainedPart:
        """Train from the average, if there is one, and return the part."""
        if task.part is not None:
            self.take(task.part)
        return await self.trained()

    async def trained(self) -> TrainedPart:
        """Train, and return the part."""
        client = self.client
        client.params = await client.trained(client.params)
        return TrainedPart(client.part(client.params, self.name), client.samples)

    def take(self, part: Vector) -> None:
        """Replace the part by the average."""
        self.client.params = self.client.with_part(self.client.params, self.name, part)
