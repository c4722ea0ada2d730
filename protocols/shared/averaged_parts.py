"""A part of the model is averaged by a server, and the rest stays with each client.

    each round: u_i <- u for the sampled clients i
                (u_i, v_i) <- E local epochs, of both at once
                u <- sum_i n_i u_i / sum_i n_i

u is the part that is shared (the head, or the backbone), v_i what client i keeps. Only u travels. Until there
is an average a client trains its own u_i. With the next task comes the average, so that a model, as it is
evaluated, is by default what the client has trained last, its own u_i included; with `broadcast = "all"` the
average is sent as soon as it is made, and takes the place of u_i in what is evaluated.
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
    """Train on, with this part; None: with the own one."""

    part: Vector | None
    round: int


@dataclass(frozen=True)
class TrainedPart:
    """A client's trained part and the number of samples it was trained on."""

    part: Vector
    samples: int


@dataclass(frozen=True)
class AveragePart:
    """The new average."""

    part: Vector


class AveragedPartSettings(RoundSettings):
    """A server averages a part of its clients' models."""

    weights: Weighing = "samples"
    """How much a client counts: as it has samples, or as much as any other."""


class AveragedPartServer(RoundServer):
    """Averages the part that is shared."""

    settings: AveragedPartSettings
    average: Vector | None = None
    """The last average."""

    def task(self, client: str, number: int) -> RoundTask:
        return PartTask(self.average, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        received: list[TrainedPart] = list(answers.values())
        weights = shares([answer.samples for answer in received], self.settings.weights)
        self.average = mix([(weight, answer.part) for weight, answer in zip(weights, received, strict=True)])

    def news(self, client: str) -> object | None:
        return None if self.average is None else AveragePart(self.average)


class SharedPart(Component):
    """The part of one client's model that a server averages: "head" or "backbone"."""

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
        """Go on with the average."""
        self.client.params = self.client.with_part(self.client.params, self.name, part)
