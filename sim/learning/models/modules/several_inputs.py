"""Models with several inputs, whose numbers lie side by side in a sample."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn


class SeveralInputs(nn.Module):
    """Hands each input in its shape to a module that takes so many arguments."""

    def __init__(self, module: nn.Module, shapes: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.module = module
        self._shapes = tuple(shapes)

    def forward(self, x: Tensor) -> Tensor:
        """Samples [B, numbers] -> outputs [B, K]."""
        pieces = x.split([math.prod(shape) for shape in self._shapes], dim=1)
        inputs = [piece.reshape(len(x), *shape) for piece, shape in zip(pieces, self._shapes, strict=True)]
        outputs: Tensor = self.module(*inputs)
        return outputs
