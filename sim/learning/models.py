"""The models, and `Architecture`: a model as a pure function of one flat parameter vector.

The engine keeps a client's parameters as one vector of P float32 numbers and trains many clients in one
`torch.func.vmap` call. Modules are therefore built on the meta device, where they hold shapes but no
numbers, and `Architecture.forward` puts a vector's values in their place. That works only for modules without
state of their own, so norms are GroupNorm: BatchNorm's running statistics would be shared by all clients.
"""

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from sim.errors import UserError


class Point(nn.Module):
    """A single vector in R^d, the model of the quadratic clients; it ignores what its inputs say."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.empty(dimension))

    def forward(self, x: Tensor) -> Tensor:
        """[B, ...] -> [B, d]: the vector, once for each row."""
        return self.position.expand(x.shape[0], -1)


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
    _require(
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
    channels, height, width = _image_shape("cnn", input_shape, smallest=4)
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
    channels, _, _ = _image_shape("resnet9", input_shape, smallest=8)
    _require(
        width >= 1 and groups >= 1 and width % groups == 0,
        f"model.width = {width}, model.groups = {groups}: the width must be a multiple of groups",
    )
    return ResNet9(channels, classes, width, groups)


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise UserError(otherwise)


def _image_shape(model: str, input_shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    fits = len(input_shape) == 3 and min(input_shape[1:]) >= smallest
    _require(
        fits,
        f'model.name = "{model}": needs images (channels, height, width) of at least {smallest}x{smallest} '
        f"pixels, but the data's inputs have shape {input_shape}; use data.name = fashion-mnist, mnist, "
        "cifar-10 or cifar-100, or model.name = mlp or logistic-regression",
    )
    channels, height, width = input_shape
    return channels, height, width


MODELS: Mapping[str, Callable[..., nn.Module]] = {
    "logistic-regression": _logistic_regression,
    "mlp": _mlp,
    "cnn": _cnn,
    "resnet9": _resnet9,
    "point": lambda input_shape, classes: Point(input_shape[0] - 1),
}


def build_model(
    name: str, options: Mapping[str, Any], input_shape: tuple[int, ...], classes: int
) -> nn.Module:
    """A model on the meta device, ready to be an `Architecture`.

    `options` are the model's own settings: `hidden` (mlp), `width` and `groups` (resnet9). `input_shape` is
    that of one sample; `classes` is 0 for the quadratic clients, whose rows are (curvature, target) and whose
    model is "point". Raises UserError for an unknown name or option, and for a model that does not fit the
    data.
    """
    _require(name in MODELS, f'model.name = "{name}": unknown; allowed: {", ".join(MODELS)}')
    allowed = list(inspect.signature(MODELS[name]).parameters)[2:]
    unknown = [option for option in options if option not in allowed]
    _require(
        not unknown,
        f'model.{", model.".join(unknown)}: not a setting of model.name = "{name}"; '
        f"allowed: {', '.join(allowed) or 'none'}",
    )
    quadratic = classes == 0
    _require(
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


def _reset_affine(module: nn.Module, parameters: Mapping[str, Tensor], generator: torch.Generator) -> None:
    """Linear and convolution layers as PyTorch does: both uniform in +-1/sqrt(fan in)."""
    weight = parameters["weight"]
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    if "bias" in parameters:
        bound = 1 / math.sqrt(math.prod(weight.shape[1:]))
        nn.init.uniform_(parameters["bias"], -bound, bound, generator=generator)


def _reset_norm(module: nn.Module, parameters: Mapping[str, Tensor], generator: torch.Generator) -> None:
    for name, parameter in parameters.items():
        parameter.fill_(1.0 if name == "weight" else 0.0)


def _reset_point(module: nn.Module, parameters: Mapping[str, Tensor], generator: torch.Generator) -> None:
    parameters["position"].zero_()


_Reset = Callable[[nn.Module, Mapping[str, Tensor], torch.Generator], None]
_RESETS: Mapping[type[nn.Module], _Reset] = {
    nn.Linear: _reset_affine,
    nn.Conv1d: _reset_affine,
    nn.Conv2d: _reset_affine,
    nn.Conv3d: _reset_affine,
    nn.GroupNorm: _reset_norm,
    nn.LayerNorm: _reset_norm,
    Point: _reset_point,
}


@dataclass(frozen=True)
class ParameterSlice:
    """Where one parameter tensor lies in the flat vector: elements offset .. offset + numel."""

    name: str
    shape: tuple[int, ...]
    offset: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class Architecture:
    """A model as a pure function of a flat vector of P parameters.

    `key` says what it is ("mlp(hidden=[100]) (64,) -> 10") and is equal for equal architectures, so that the
    engine can group clients by it. `module` lives on the meta device. `slices` lists the parameters in the
    vector's order, that of `module.named_parameters()`; `numel` is P, `shapes` the shapes in the same order.
    """

    def __init__(self, module: nn.Module, key: str, input_shape: tuple[int, ...]) -> None:
        """Raises TypeError for state other than parameters, and for parameters of no known initialisation."""
        stateful = [name for name, _ in module.named_buffers()]
        if stateful:
            raise TypeError(
                f"{key}: a model may have parameters only, but it has the buffers {', '.join(stateful)} "
                "(BatchNorm? use GroupNorm, which keeps no running statistics)"
            )
        for path, part in module.named_modules():
            if type(part) not in _RESETS and any(True for _ in part.parameters(recurse=False)):
                raise TypeError(
                    f"{key}: no initialisation is known for {type(part).__name__} (at {path or 'the top'}); "
                    f"known: {', '.join(kind.__name__ for kind in _RESETS)}"
                )
        self.module = module
        self.key = key
        self.input_shape = input_shape
        slices = []
        offset = 0
        for name, parameter in module.named_parameters():
            slices.append(ParameterSlice(name, tuple(parameter.shape), offset))
            offset += parameter.numel()
        self.slices = tuple(slices)
        self.numel = offset
        self.shapes = tuple(part.shape for part in slices)
        self.has_convolution = any(isinstance(m, nn.Conv1d | nn.Conv2d | nn.Conv3d) for m in module.modules())
        self._sizes = [part.numel for part in slices]

    def __repr__(self) -> str:
        return f"<Architecture {self.key}, {self.numel} parameters>"

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters by name, as views of a flat vector [P]; of stacked vectors [N, P] they are [N,
        *shape]."""
        parts = flat.split(self._sizes, dim=-1)
        return {
            part.name: piece.view(*flat.shape[:-1], *part.shape)
            for part, piece in zip(self.slices, parts, strict=True)
        }

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """The reverse of `unflatten` for stacked parameters [N, *shape]: a new tensor [N, P]."""
        return torch.cat([parameters[part.name].flatten(1) for part in self.slices], dim=1)

    def forward(self, parameters: Tensor | Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Parameters (flat [P], or by name), inputs [B, *input_shape] -> outputs [B, K].

        Pure, for use inside vmap and grad.
        """
        if isinstance(parameters, Tensor):
            parameters = self.unflatten(parameters)
        return torch.func.functional_call(self.module, dict(parameters), (x,))

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters [P], float32, on the generator's device; PyTorch's default initialisation.

        Bit for bit what the module's constructor would draw from a global generator in the same state. Norms
        start as the identity, a point at the origin.
        """
        flat = torch.empty(self.numel, device=generator.device)
        parameters = self.unflatten(flat)
        for path, part in self.module.named_modules():
            own = {
                name: parameters[f"{path}.{name}" if path else name]
                for name, _ in part.named_parameters(recurse=False)
            }
            if own:
                _RESETS[type(part)](part, own, generator)
        return flat

    @cached_property
    def forward_flops_per_sample(self) -> int:
        """Floating-point operations to evaluate one sample."""
        return self._count_flops(training=False)

    @cached_property
    def training_flops_per_sample(self) -> int:
        """Floating-point operations of one sample's forward and backward pass."""
        return self._count_flops(training=True)

    def _count_flops(self, *, training: bool) -> int:
        """Matrix products and convolutions, as torch counts; without any, 2 per parameter and pass."""
        flat = torch.empty(self.numel, device="meta", requires_grad=training)
        x = torch.empty(1, *self.input_shape, device="meta")
        with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(training):
            output = self.forward(flat, x)
            if training:
                output.sum().backward()
        return counter.get_total_flops() or (4 if training else 2) * self.numel


def architecture(
    name: str, options: Mapping[str, Any], input_shape: tuple[int, ...], classes: int
) -> Architecture:
    """`build_model` as an `Architecture`; raises the same UserErrors."""
    module = build_model(name, options, input_shape, classes)
    call = inspect.signature(MODELS[name]).bind(input_shape, classes, **options)
    call.apply_defaults()  # a default left out and the same value stated are the same architecture
    settings = [
        f"{option}={list(value) if isinstance(value, Sequence) else value}"
        for option, value in list(call.arguments.items())[2:]
    ]
    return Architecture(module, f"{name}({', '.join(settings)}) {input_shape} -> {classes}", input_shape)
