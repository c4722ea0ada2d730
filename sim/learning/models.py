"""The models by name: modules, from which `Architecture` makes pure functions."""

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sim.learning.architecture import Architecture
from sim.learning.decoupled import decoupled
from sim.learning.refusals import image_shape, require

_NO_IMAGES = "model.name = mlp or logistic-regression"


class Point(nn.Module):
    """A single vector in R^d, the model of the quadratic clients; it ignores what its inputs say."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.empty(dimension))

    def forward(self, x: Tensor) -> Tensor:
        """[B, ...] -> [B, d]: the vector, once for each row."""
        return self.position.expand(x.shape[0], -1)

    def reset(self, parameters: Mapping[str, Tensor], generator: torch.Generator) -> None:
        """Start at the origin."""
        parameters["position"].zero_()


def _conv_block(channels_in: int, channels_out: int, groups: int, *, pool: bool) -> nn.Sequential:
    layers = [
        nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False),
        nn.GroupNorm(groups, channels_out),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))


class ResNet9(nn.Module):
    """Eight 3x3 convolutions in two residual and four plain blocks, then a linear layer.

    Channels are `width` times 1, 2, 4, 8. The last feature maps are reduced by a global maximum, so that
    28x28 and 32x32 images both fit; on 32x32 that equals the usual 4x4 max pooling.
    """

    def __init__(self, channels: int, classes: int, width: int, groups: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv_block(channels, width, groups, pool=False),
            _conv_block(width, 2 * width, groups, pool=True),
        )
        self.residual_1 = nn.Sequential(
            _conv_block(2 * width, 2 * width, groups, pool=False),
            _conv_block(2 * width, 2 * width, groups, pool=False),
        )
        self.middle = nn.Sequential(
            _conv_block(2 * width, 4 * width, groups, pool=True),
            _conv_block(4 * width, 8 * width, groups, pool=True),
        )
        self.residual_2 = nn.Sequential(
            _conv_block(8 * width, 8 * width, groups, pool=False),
            _conv_block(8 * width, 8 * width, groups, pool=False),
        )
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, K] logits."""
        x = self.stem(x)
        x = x + self.residual_1(x)
        x = self.middle(x)
        x = x + self.residual_2(x)
        return self.head(x.amax(dim=(2, 3)))


def _logistic_regression(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))


def _mlp(input_shape: tuple[int, ...], classes: int, hidden: Sequence[int] = (100,)) -> nn.Module:
    require(
        all(width >= 1 for width in hidden),
        f"model.hidden = {list(hidden)}: every layer needs at least 1 unit",
    )
    widths = [math.prod(input_shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for width_in, width_out in itertools.pairwise(widths):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def _cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """FedAvg's two-layer CNN (McMahan et al. 2017, section 3): 1,663,370 parameters on 28x28 grey images."""
    channels, height, width = image_shape('model.name = "cnn"', input_shape, 4, _NO_IMAGES)
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


def _resnet9(input_shape: tuple[int, ...], classes: int, width: int = 64, groups: int = 32) -> nn.Module:
    channels, _, _ = image_shape('model.name = "resnet9"', input_shape, 8, _NO_IMAGES)
    require(
        width >= 1 and groups >= 1 and width % groups == 0,
        f"model.width = {width}, model.groups = {groups}: the width must be a multiple of groups",
    )
    return ResNet9(channels, classes, width, groups)


MODELS: Mapping[str, Callable[..., nn.Module]] = {
    "logistic-regression": _logistic_regression,
    "mlp": _mlp,
    "cnn": _cnn,
    "resnet9": _resnet9,
    "decoupled": decoupled,
    "point": lambda input_shape, classes: Point(input_shape[0] - 1),
}


def build_model(
    name: str, options: Mapping[str, Any], input_shape: tuple[int, ...], classes: int
) -> nn.Module:
    """A model on the meta device, ready to be an `Architecture`.

    `options` are the model's own settings: `hidden` (mlp), `width` and `groups` (resnet9), `backbone`,
    `features`, `projection_hidden` and `parts` (decoupled). `input_shape` is that of one sample; `classes` is
    0 for the quadratic clients, whose rows are (curvature, target) and whose model is "point". Raises
    UserError for an unknown name or option, and for a model that does not fit the data.
    """
    require(name in MODELS, f'model.name = "{name}": unknown; allowed: {", ".join(MODELS)}')
    allowed = list(inspect.signature(MODELS[name]).parameters)[2:]
    unknown = [option for option in options if option not in allowed]
    require(
        not unknown,
        f'model.{", model.".join(unknown)}: not a setting of model.name = "{name}"; '
        f"allowed: {', '.join(allowed) or 'none'}",
    )
    quadratic = classes == 0
    require(
        quadratic == (name == "point"),
        f'model.name = "{name}": '
        + (
            'the data are quadratic functions of a vector; the only model for them is "point"'
            if quadratic
            else f'only for data.name = "quadratic", but this data has {classes} classes'
        ),
    )
    with torch.device("meta"):
        return MODELS[name](input_shape, classes, **options)


def architecture(
    name: str, options: Mapping[str, Any], input_shape: tuple[int, ...], classes: int
) -> Architecture:
    """`build_model` as an `Architecture`; raises the same UserErrors."""
    module = build_model(name, options, input_shape, classes)
    call = inspect.signature(MODELS[name]).bind(input_shape, classes, **options)
    call.apply_defaults()  # a default left out and the same value stated are the same architecture
    settings = [
        f"{option}={value if isinstance(value, str | int) else list(value)}"
        for option, value in list(call.arguments.items())[2:]
    ]
    return Architecture(module, f"{name}({', '.join(settings)}) {input_shape} -> {classes}", input_shape)
