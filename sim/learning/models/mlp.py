"""Fully connected layers, or a single one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from actors.settings.quantities import Count
from sim.learning.models.model import ModelSection

if TYPE_CHECKING:
    from torch import nn


class LogisticRegression(ModelSection):
    """One linear layer: logistic regression, or linear regression of numbers."""

    name: Literal["logistic-regression"]

    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        return fully_connected(math.prod(input_shape), (), classes)


class Mlp(ModelSection):
    """Fully connected layers with ReLU."""

    name: Literal["mlp"]
    hidden: Annotated[tuple[Count, ...], Field(max_length=100)] = (100,)
    """Width of each hidden layer."""

    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        return fully_connected(math.prod(input_shape), self.hidden, classes)


def fully_connected(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Module:
    """Linear layers of these widths, with a ReLU between each two, behind a flattening."""
    from torch import nn

    layers: list[nn.Module] = [nn.Flatten()]
    for width_in, width_out in itertools.pairwise((inputs, *hidden)):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear((inputs, *hidden)[-1], outputs))
