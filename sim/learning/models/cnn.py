"""FedAvg's convolutional network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sim.learning.models.model import ModelSection

if TYPE_CHECKING:
    from torch import nn


class Cnn(ModelSection):
    """FedAvg's network: two 5x5 convolutions (32, 64), each with pooling, then 512 units."""

    smallest_image = 4

    name: Literal["cnn"]

    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """That of McMahan et al. (2017), section 3: 1,663,370 parameters on 28x28 grey images."""
        from torch import nn

        channels, height, width = input_shape
        return nn.Sequential(
            nn.Conv2d(channels, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), 512),
            nn.ReLU(),
            nn.Linear(512, classes),
        )
