"""A server that keeps several models, all of which travel: what IFCA and FedEM have in common."""

from dataclasses import dataclass

import torch
from torch import Tensor

from actors.settings.quantities import Count
from protocols.framework.vectors import Vector
from protocols.shared.server_rounds import RoundServer, RoundSettings, RoundTask


@dataclass(frozen=True)
class SeveralModels(RoundTask):
    """Work with these models."""

    models: tuple[Vector, ...]
    round: int


@dataclass(frozen=True)
class LatestModels:
    """The models after a round, for clients that do not train in the next one."""

    models: tuple[Vector, ...]


class SeveralModelsSettings(RoundSettings):
    """A server keeps several models."""

    models: Count = 2
    """Number of models (K in IFCA, M in FedEM)."""

    def own_numbers(self, model: int, clients: int) -> int:
        """The server's models."""
        return self.models * model


def with_signs(initial: Tensor, signs: Tensor) -> Tensor:
    """Initial numbers [P] times `signs` [P], but for those that were not drawn: they equal one beside them.

    Such are the variances of batch norms, which are no variances with the other sign, and their weights.
    """
    alike = initial[1:] == initial[:-1]
    none = torch.zeros(1, dtype=torch.bool, device=initial.device)
    constant = torch.cat([alike, none]) | torch.cat([none, alike])
    return torch.where(constant, initial, initial * signs)


class SeveralModelsServer(RoundServer):
    """Keeps models that start apart: as the initial one, each random number with a random sign.

    Initial weights are as likely with the other sign.
    """

    settings: SeveralModelsSettings

    def begin(self) -> None:
        self.models = tuple([self.start() for _ in range(self.settings.models)])

    def start(self) -> Vector:
        """A start of its own."""
        signs: Vector = self.vector(self.rng.choice([-1.0, 1.0], size=self.params.shape))
        found: Vector = self.apply(with_signs, self.params, signs)
        return found

    def task(self, client: str, number: int) -> RoundTask:
        return SeveralModels(self.models, number)

    def news(self, client: str) -> object | None:
        return LatestModels(self.models)
