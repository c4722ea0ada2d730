"""A part of the model is averaged by a server, and the rest stays with each client.

    each round: u_i <- u for the sampled clients i
                (u_i, v_i) <- E local epochs, of both at once
                u <- sum_i n_i u_i / sum_i n_i

u is the part that is shared (the head, or the backbone), v_i what client i keeps. Only u travels. Until there
is an average a client trains its own u_i. With the next task comes the average, so that a model, as it is
evaluated, is by default what the client has trained last, its own u_i included; with `broadcast = "all"` the
average is sent as soon as it is made, and takes the place of u_i in what is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from actors.settings.quantities import Weighing
from protocols.framework.vectors import Vector, mix
from protocols.shared.server_rounds import PartsClient, RoundServer, RoundSettings, RoundTask, shares


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


class AveragedPartClient(PartsClient):
    """A client that shares a part of its model."""

    Settings = AveragedPartSettings
    server = AveragedPartServer
    parts: ClassVar[tuple[str, ...] | None] = ()
    shared: ClassVar[str]
    """The part that is shared: "head" or "backbone"."""

    async def work(self, task: Any) -> object:
        if task.part is not None:
            self.take(task.part)
        self.params = await self.trained(self.params)
        return TrainedPart(self.part(self.params, self.shared), self.samples)

    def learn(self, news: Any) -> None:
        self.take(news.part)

    def take(self, part: Vector) -> None:
        """Go on with the average."""
        self.params = self.with_part(self.params, self.shared, part)
