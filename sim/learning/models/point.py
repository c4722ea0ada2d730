"""Model of clients that minimize a function of a vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sim.learning.models.model import ModelSection

if TYPE_CHECKING:
    from torch import nn


class Point(ModelSection):
    """One vector, for quadratic data."""

    tasks = ("quadratic",)

    name: Literal["point"]

    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return a point of R^d for rows (curvature, target) of 1 + d numbers."""
        from sim.learning.models.modules.point import PointModule

        return PointModule(input_shape[0] - 1)
