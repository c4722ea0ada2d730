"""Fully connected layers, or a single linear layer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from actors.settings.quantities import Count
from sim.learning.models.model import ModelSection
from sim.learning.models.size import ModelSize

if TYPE_CHECKING:
    from torch import nn


class FullyConnected(ModelSection):
    """Fully connected layers, with sizes from the keys."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of each layer except the last."""
        return ()

    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        return fully_connected(math.prod(input_shape), self.widths, classes)

    def size(self, input_shape: tuple[int, ...], classes: int) -> ModelSize:
        """Return the size of the model, which equals the size of its `Architecture`."""
        widths = (math.prod(input_shape), *self.widths, classes)
        products = [width_in * width_out for width_in, width_out in itertools.pairwise(widths)]
        # Two operations each: forward, for the gradients of weights, and for the gradients of a layer's
        # inputs.
        flops = 2 * (3 * sum(products) - products[0])
        numel = sum(products) + sum(widths[1:])
        return ModelSize(self.key(input_shape, classes), input_shape, numel, flops)


class LogisticRegression(FullyConnected):
    """One linear layer: logistic regression, or linear regression."""

    name: Literal["logistic-regression"]


class Mlp(FullyConnected):
    """Fully connected layers with ReLU."""

    name: Literal["mlp"]
    hidden: Annotated[tuple[Count, ...], Field(max_length=100)] = (100,)
    """Width of each hidden layer."""

    @property
    def widths(self) -> tuple[int, ...]:
        return self.hidden


def fully_connected(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Module:
    """Return a flattening, then linear layers of these widths with a ReLU between each two."""
    from torch import nn

    layers: list[nn.Module] = [nn.Flatten()]
    for width_in, width_out in itertools.pairwise((inputs, *hidden)):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear((inputs, *hidden)[-1], outputs))
