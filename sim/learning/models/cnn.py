"""FedAvg's convolutional network, and similar networks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal, assert_never

from pydantic import Field, model_validator

from actors.settings.base import SettingError, require_defaults
from actors.settings.quantities import Count, Within
from sim.learning.data.dataset import DataSection
from sim.learning.models.model import ModelSection

if TYPE_CHECKING:
    from torch import nn

_POOLINGS = 4  # leave one pixel of the smallest images, 28x28
_Channels = Annotated[int, Within(1, 10_000)]


class Cnn(ModelSection):
    """Convolutions, each with 2x2 pooling, then linear layers.

    The defaults give FedAvg's network: 5x5 convolutions with 32 and 64 channels, and 512 hidden units.
    """

    smallest_image = 4

    name: Literal["cnn"]
    channels: Annotated[tuple[_Channels, ...], Field(min_length=1, max_length=_POOLINGS)] = (32, 64)
    """Channels of each convolution. FedeRiCo uses [128, 128, 128]."""
    kernel: Annotated[int, Field(ge=1, le=15)] = 5
    """Height and width of the convolutions, an odd number. Convolutions keep the size of images."""
    hidden: Annotated[tuple[Count, ...], Field(max_length=100)] = (512,)
    """Width of each linear layer before the last one."""
    norm: Literal["group", "batch", "none"] = "none"
    """Normalization between each convolution and its activation."""
    groups: Count = 8
    """Groups of each GroupNorm; must divide all `channels`."""

    def misfits(self, data: DataSection) -> Iterator[SettingError]:
        if self.kernel % 2 == 0:
            yield SettingError("model.kernel", self.kernel, "must be odd")
        if self.norm == "group" and any(channels % self.groups for channels in self.channels):
            problem = f"must divide all channels ({', '.join(map(str, self.channels))})"
            yield SettingError("model.groups", self.groups, problem)

    @model_validator(mode="after")
    def _groups_are_of_norms(self) -> Cnn:
        if self.norm != "group":
            require_defaults(self, f'it applies to "group", but model.norm is "{self.norm}"', "groups")
        return self

    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the module.

        The default is that of McMahan et al. (2017), section 3, with 1,663,370 parameters for 28x28 pixels.
        """
        from torch import nn

        channels, height, width = input_shape
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise((channels, *self.channels)):
            layers += [nn.Conv2d(before, after, self.kernel, padding=self.kernel // 2)]
            layers += [*self._norm(after), nn.ReLU(), nn.MaxPool2d(2)]
            height, width = height // 2, width // 2
        widths = [self.channels[-1] * height * width, *self.hidden]
        layers.append(nn.Flatten())
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], classes))

    def _norm(self, channels: int) -> list[nn.Module]:
        from torch import nn

        from sim.learning.models.modules.batch_norm import BatchNorm2d

        match self.norm:
            case "none":
                return []
            case "group":
                return [nn.GroupNorm(self.groups, channels)]
            case "batch":
                return [BatchNorm2d(channels)]
            case _:
                assert_never(self.norm)
