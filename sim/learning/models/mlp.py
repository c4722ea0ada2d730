"""Fully connected layers."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from actors.settings.quantities import Count
from sim.learning.models.model import ModelSection

if TYPE_CHECKING:
    from torch import nn


class Mlp(ModelSection):
    """Fully connected layers with ReLU."""

    name: Literal["mlp"]
    hidden: Annotated[tuple[Count, ...], Field(max_length=100)] = (100,)
    """Width of each hidden layer."""

    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        widths = [math.prod(input_shape), *self.hidden]
        layers: list[nn.Module] = [nn.Flatten()]
        for width_in, width_out in itertools.pairwise(widths):
            layers += [nn.Linear(width_in, width_out), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], classes))
