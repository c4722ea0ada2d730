"""A server that keeps several models, all of which travel: what IFCA and FedEM have in common."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.framework import learner
from protocols.framework.settings import Count
from protocols.framework.vectors import Vector
from protocols.shared.server_rounds import RoundServer, RoundSettings, RoundTask


@dataclass(frozen=True)
class SeveralModels(RoundTask):
    """Work with these models; `round`: which it is, or the one after which they are told to all."""

    models: tuple[Vector, ...]
    round: int


class SeveralModelsSettings(RoundSettings):
    """A server keeps several models."""

    models: Count = 2
    """Number of models (K in IFCA, M in FedEM)."""


class SeveralModelsServer(RoundServer):
    """Keeps models that start apart: as the initial one, each number with a random sign.

    Initial weights are as likely with the other sign.
    """

    settings: SeveralModelsSettings

    def __init__(
        self,
        name: str,
        surroundings: learner.Surroundings,
        settings: learner.ProtocolSettings,
        initial: Vector,
    ) -> None:
        super().__init__(name, surroundings, settings, initial)
        self.models = tuple([self.start() for _ in range(self.settings.models)])
        self.rounds = 0

    def start(self) -> Vector:
        """A start of its own."""
        signs: Vector = self.vector(self.rng.choice([-1.0, 1.0], size=self.params.shape))
        return self.params * signs

    def task(self, client: str, number: int) -> RoundTask:
        self.rounds = number
        return SeveralModels(self.models, number)

    def news(self, client: str) -> object | None:
        return SeveralModels(self.models, self.rounds)
