"""Modules of backbones: input -> z [B, d_z]."""

import math
from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn

from sim.learning import vision
from sim.learning.models.backbones import ANY_SHAPE, BACKBONES
from sim.learning.models.mlp import fully_connected
from sim.learning.models.model import require_images
from sim.learning.models.modules.batch_norm import BatchNorm2d, replace_batch_norms

Shape = tuple[int, ...]


def _small_cnn(input_shape: Shape, features: int) -> nn.Module:
    """Return a 5x5 convolution of stride 2 and a 3x3 one (16, 32), then pooling."""
    channels, height, width = input_shape
    pooled = (height + 1) // 2 // 2 * ((width + 1) // 2 // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * pooled, features),
    )


def _conv(channels_in: int, channels_out: int, stride: int = 1) -> list[nn.Module]:
    """Return a 3x3 convolution, batch norm and ReLU."""
    return [
        nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False),
        BatchNorm2d(channels_out),
        nn.ReLU(),
    ]


class _GlobalMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        """Return the means over positions: [B, C, H, W] -> [B, C]."""
        return x.mean(dim=(2, 3))


def _deep_cnn(input_shape: Shape, features: int) -> nn.Module:
    """Return five 3x3 convolutions with batch norm."""
    channels = input_shape[0]
    return nn.Sequential(
        *_conv(channels, 16, stride=2),
        *_conv(16, 32, stride=2),
        *_conv(32, 32),
        *_conv(32, 64, stride=2),
        *_conv(64, 64),
        _GlobalMean(),
        nn.Linear(64, features),
    )


class _Residual(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            *_conv(channels_in, channels_out, stride),
            nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False),
            BatchNorm2d(channels_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), BatchNorm2d(channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.inner(x) + self.shortcut(x))


def _small_resnet(input_shape: Shape, features: int) -> nn.Module:
    """Return a convolution and two residual blocks, all with batch norm."""
    channels = input_shape[0]
    return nn.Sequential(
        *_conv(channels, 16, stride=2),
        _Residual(16, 32, 2),
        _Residual(32, 64, 2),
        _GlobalMean(),
        nn.Linear(64, features),
    )


def _lenet(input_shape: Shape, features: int) -> nn.Module:
    """Return two 5x5 convolutions (16, 32), each with pooling, and 120 hidden units.

    The target network of Shamsian et al., "Personalized federated learning using hypernetworks" (2021).
    """

    def last(size: int) -> int:
        """Return the side of the last feature maps, in pixels, for an image's side."""
        return ((size - 4) // 2 - 4) // 2

    channels, height, width = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * last(height) * last(width), 120),
        nn.ReLU(),
        nn.Linear(120, features),
    )


def _alexnet(input_shape: Shape, features: int) -> nn.Module:
    """Return three convolutions (64, 192, 384), with the overlapping pooling of Krizhevsky et al. (2012).

    torchvision's AlexNet does not accept images of 28x28 or 32x32; MAPL's code also uses a small AlexNet.
    """
    channels, height, width = input_shape

    def last(size: int) -> int:
        """Return the side of the last feature maps, in pixels: after a stride of 2 and two poolings."""
        return (((size + 1) // 2 - 1) // 2 - 1) // 2

    return nn.Sequential(
        nn.Conv2d(channels, 64, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(384 * last(height) * last(width), features),
    )


def _torchvision_backbone(name: str, input_shape: Shape, features: int) -> nn.Module:
    return replace_batch_norms(vision.network(name, input_shape[0], features))


MODULES: Mapping[str, Callable[[Shape, int], nn.Module]] = {
    "small-mlp": lambda shape, features: fully_connected(math.prod(shape), (200,), features),
    "deep-mlp": lambda shape, features: fully_connected(math.prod(shape), (100, 100), features),
    "small-cnn": _small_cnn,
    "deep-cnn": _deep_cnn,
    "small-resnet": _small_resnet,
    "lenet": _lenet,
    "alexnet": _alexnet,
    **{name: partial(_torchvision_backbone, name) for name in vision.NETWORKS},
}
"""(input shape, d_z) -> module, for each entry of `sim.learning.models.backbones.BACKBONES`."""


def backbone_module(name: str, input_shape: Shape, features: int) -> nn.Module:
    """Return a backbone from inputs of this shape to `features` numbers. Raises UserError if it cannot."""
    smallest_image = BACKBONES[name]
    if smallest_image is not None:
        others = " and ".join(f'"{other}"' for other in ANY_SHAPE)
        require_images(f'model.backbones: "{name}"', input_shape, smallest_image, f"only {others}")
    return MODULES[name](input_shape, features)
