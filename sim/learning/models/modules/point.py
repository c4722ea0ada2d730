"""Module of the quadratic clients."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class PointModule(nn.Module):
    """Single vector in R^d, the model of the quadratic clients. It ignores its inputs."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.empty(dimension))

    def forward(self, x: Tensor) -> Tensor:
        """Return the vector for each row: [B, ...] -> [B, d]."""
        return self.position.expand(x.shape[0], -1)

    def reset(self, parameters: Mapping[str, Tensor], generator: torch.Generator) -> None:
        """Start at the origin."""
        parameters["position"].zero_()
