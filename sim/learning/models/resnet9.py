"""Small residual network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import PositiveInt, model_validator

from actors.settings.base import SettingError
from actors.settings.quantities import Count, Within
from sim.learning.models.model import ModelSection

if TYPE_CHECKING:
    from torch import nn


class ResNet9(ModelSection):
    """Residual network with nine layers and GroupNorm."""

    smallest_image = 8

    name: Literal["resnet9"]
    width: Annotated[PositiveInt, Within(1, 10_000)] = 64
    """Channels of the first layer."""
    groups: Count = 32
    """Groups of each GroupNorm; must divide `width`."""

    @model_validator(mode="after")
    def _divides(self) -> ResNet9:
        if self.width % self.groups:
            raise SettingError("groups", self.groups, f"must divide width ({self.width})")
        return self

    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from sim.learning.models.modules.residual_network import ResidualNetwork

        return ResidualNetwork(input_shape[0], classes, self.width, self.groups)
