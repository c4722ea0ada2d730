"""One linear layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from sim.learning.models.model import ModelSection

if TYPE_CHECKING:
    from torch import nn


class LogisticRegression(ModelSection):
    """One linear layer: logistic regression, or linear regression of numbers."""

    name: Literal["logistic-regression"]

    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))
