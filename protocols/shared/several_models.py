"""Server that keeps several models, all of which it sends: the common part of IFCA and FedEM."""

from dataclasses import dataclass

import torch
from torch import Tensor

from actors.settings.quantities import Count
from protocols.framework.vectors import Vector
from protocols.shared.server_rounds import RoundServer, RoundSettings, RoundTask


@dataclass(frozen=True)
class SeveralModels(RoundTask):
    """Task to work with these models."""

    models: tuple[Vector, ...]
    round: int


@dataclass(frozen=True)
class LatestModels:
    """Models after a round, which the server sends to clients."""

    models: tuple[Vector, ...]


class SeveralModelsSettings(RoundSettings):
    """Settings of a server that keeps several models."""

    models: Count = 2
    """Number of models (K in IFCA, M in FedEM)."""

    def own_numbers(self, model: int, clients: int) -> int:
        """Return the number of values of the server's models."""
        return self.models * model


def with_signs(initial: Tensor, signs: Tensor) -> Tensor:
    """Return initial numbers [P] times `signs` [P], except constants: numbers that equal an adjacent one.

    Constants are, for example, the variances of batch norms, which must not be negative, and their weights.
    """
    alike = initial[1:] == initial[:-1]
    none = torch.zeros(1, dtype=torch.bool, device=initial.device)
    constant = torch.cat([alike, none]) | torch.cat([none, alike])
    return torch.where(constant, initial, initial * signs)


class SeveralModelsServer(RoundServer):
    """Server with several models, which have different initial values.

    Each starts as the initial model with a random sign for each randomly initialized weight. The distribution
    of these weights is symmetric.
    """

    settings: SeveralModelsSettings

    def setup(self) -> None:
        self.models = tuple([self.start() for _ in range(self.settings.models)])

    def start(self) -> Vector:
        """Return another initial model: `params` with new random signs."""
        signs: Vector = self.vector(self.rng.choice([-1.0, 1.0], size=self.params.shape))
        found: Vector = self.apply(with_signs, self.params, signs)
        return found

    def task(self, client: str, number: int) -> RoundTask:
        return SeveralModels(self.models, number)

    def news(self, client: str) -> object | None:
        return LatestModels(self.models)
