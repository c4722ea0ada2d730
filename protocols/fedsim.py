"""FedSim: clients keep their backbones and share the head, which a server averages.

Pillutla et al., "Federated learning with partial model personalization" (2022), algorithm FedSim, with the
backbone theta_i personal and the head phi shared, as Mukherjee et al. (MAPL, appendix C.2) compare with it:

    each round: phi_i <- phi for the sampled clients i
                (theta_i, phi_i) <- E local epochs, of both at once
                phi <- sum_i n_i phi_i / sum_i n_i

Only heads travel, so that backbones may differ. Until there is an average a client trains its own head.

Differences to the paper: Pillutla et al. share most layers and keep few, and weigh clients as their objective
does; here by their samples or equally (`weights`). Their models are evaluated with the average, whose place
in the algorithm is the end of a round. Here the average comes with the next round's task, so that a model, as
it is evaluated, is by default what the client has trained last, its own head included: which flatters the
method where classes differ. With `broadcast = "all"` the average is sent as soon as it is made, and takes the
place of the head in what is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from protocols.framework.vectors import Vector, mix
from protocols.shared.server_rounds import PartsClient, RoundServer, RoundSettings, RoundTask


@dataclass(frozen=True)
class HeadTask(RoundTask):
    """Train on, with this head [K * (d_z + 1)]; None: with the own one."""

    head: Vector | None
    round: int


@dataclass(frozen=True)
class TrainedHead:
    """A client's trained head and the number of samples it was trained on."""

    head: Vector
    samples: int


@dataclass(frozen=True)
class AverageHead:
    """The new average."""

    head: Vector


class FedSimSettings(RoundSettings):
    """A server averages the heads of its clients."""

    weights: Literal["samples", "equal"] = "samples"
    """How much a client counts: as it has samples, or as much as any other."""


class FedSimServer(RoundServer):
    """Averages heads."""

    settings: FedSimSettings
    head: Vector | None = None
    """The last average."""

    def task(self, client: str, number: int) -> RoundTask:
        return HeadTask(self.head, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        received: list[TrainedHead] = list(answers.values())
        counts = [answer.samples if self.settings.weights == "samples" else 1 for answer in received]
        total = sum(counts)
        self.head = mix([(n / total, answer.head) for n, answer in zip(counts, received, strict=True)])

    def news(self, client: str) -> object | None:
        return None if self.head is None else AverageHead(self.head)


class FedSim(PartsClient):
    """A client that shares its head."""

    Settings = FedSimSettings
    server = FedSimServer
    parts: ClassVar[tuple[str, ...] | None] = ()

    async def work(self, task: HeadTask) -> TrainedHead:
        if task.head is not None:
            self.take(task.head)
        self.params = await self.trained(self.params)
        return TrainedHead(self.part(self.params, "head"), self.samples)

    def learn(self, news: AverageHead) -> None:
        self.take(news.head)

    def take(self, head: Vector) -> None:
        """Go on with the average."""
        self.params = self.with_part(self.params, "head", head)
