"""Models with several inputs, which are concatenated in a sample."""

import math
from collections.abc import Sequence

from torch import Tensor, nn


class SeveralInputs(nn.Module):
    """Wrapper that splits samples into inputs of the right shapes, and calls a module with them."""

    def __init__(self, module: nn.Module, shapes: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.module = module
        self._shapes = tuple(shapes)

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs [B, K] of samples [B, numbers]."""
        pieces = x.split([math.prod(shape) for shape in self._shapes], dim=1)
        inputs = [piece.reshape(len(x), *shape) for piece, shape in zip(pieces, self._shapes, strict=True)]
        outputs: Tensor = self.module(*inputs)
        return outputs
