"""Chains of layers with gradients in closed form, for N clients at once, and models made of them.

Values are stored in columns, [N, width, B], the layout in which products are fastest. Under autocast they are
bfloat16. Sums over a batch stay float32: `float()` and `dtype=` in the code ensure this, and have no effect
without autocast.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sim.learning.architecture import Architecture
from sim.learning.engine.backends.backend import Named
from sim.learning.engine.backends.products import product
from sim.learning.models.modules.batch_norm import BatchNorm, BatchNorm1d, require_several
from sim.learning.models.modules.decoupled import DecoupledModule

Gradients = tuple[Tensor, Sequence[Tensor]]
"""Gradients with respect to a layer's input, and to its trained parameters, the latter summed over the
batch."""

threshold_backward = torch.ops.aten.threshold_backward.default
batch_norm_backward = torch.ops.aten.native_batch_norm_backward.default
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class Linear:
    """Weight [outputs, inputs] times the values, plus bias [outputs].

    passes: True if the gradient with respect to the values is needed.
    """

    trained: tuple[str, str]
    passes: bool

    def forward(self, named: Named, values: Tensor, moved: Named | None) -> tuple[Tensor, Tensor]:
        weight, bias = named[self.trained[0]], named[self.trained[1]].unsqueeze(2)
        if values.shape[0] == weight.shape[0]:
            return product(weight, values, bias), values
        # All clients share the input: one product with all weights.
        if not torch.is_autocast_enabled(values.device.type):
            return torch.matmul(weight, values[0]).add_(bias), values
        # In bfloat16 this form rounds once, not twice.
        return torch.baddbmm(bias, weight, values.expand(weight.shape[0], -1, -1)), values

    def backward(self, named: Named, error: Tensor, inputs: Tensor) -> Gradients:
        passed_on = product(named[self.trained[0]].mT, error) if self.passes else error
        # bmm(..., out=) into a row of parameters would take three times as long.
        of_weight = product(error, inputs.mT)
        return passed_on, (of_weight, torch.sum(error, dim=2, dtype=torch.float32))


@dataclass(frozen=True)
class Rectifier:
    """max(0, values); in place, unless the values are needed elsewhere."""

    in_place: bool
    trained: tuple[str, ...] = ()

    def forward(self, named: Named, values: Tensor, moved: Named | None) -> tuple[Tensor, Tensor]:
        values = values.relu_() if self.in_place else values.relu()
        return values, values

    def backward(self, named: Named, error: Tensor, outputs: Tensor) -> Gradients:
        return threshold_backward(error, outputs, 0.0), ()


@dataclass(frozen=True)
class Norm:
    """`BatchNorm` of flat values: one number per channel and sample."""

    trained: tuple[str, str]
    statistics: tuple[str, str]
    eps: float
    momentum: float

    def forward(self, named: Named, values: Tensor, moved: Named | None) -> tuple[Tensor, Any]:
        weight, bias, mean, variance = [_copy(named[name]) for name in self.trained + self.statistics]
        shape = (named[self.trained[0]].shape[0], *values.shape[1:])
        # torch normalizes channels: the channels of all clients are concatenated.
        columns = values.float().expand(shape).reshape(1, len(weight), -1)
        if moved is None:
            variance.clamp_(min=0)
        else:
            require_several(shape[2])
            rows = [moments.view(shape[:2]) for moments in (mean, variance)]
            moved.update(zip(self.statistics, rows, strict=True))  # moved by the call below
        how = (moved is not None, self.momentum, self.eps)
        found, *moments = torch.native_batch_norm(columns, weight, bias, mean, variance, *how)
        return found.view(shape), (columns, weight, moments)

    def backward(self, named: Named, error: Tensor, kept: tuple[Tensor, Tensor, list[Tensor]]) -> Gradients:
        columns, weight, moments = kept
        given, how = error.float().reshape(columns.shape), (True, self.eps, [True] * 3)
        passed_on, *found = batch_norm_backward(given, columns, weight, None, None, *moments, *how)
        return passed_on.view(error.shape), [total.view(error.shape[:2]) for total in found]


def _copy(rows: Tensor) -> Tensor:
    """Return the rows [N, C], concatenated in a new tensor."""
    return rows.clone(memory_format=torch.contiguous_format).view(-1)


Layer = Linear | Rectifier | Norm
"""Layer: `forward(named, values, moved)` returns output and kept values for `backward(named, error, kept)`.

named: the parameters [N, *shape] by name. moved: None in evaluation; in training it receives the new
statistics.
trained: the names of the parameters whose gradients `backward` returns, in this order.
"""


class Chain(NamedTuple):
    """Consecutive layers, from `source` ("x", or the output of an earlier chain) to `output`."""

    source: str
    output: str
    layers: tuple[Layer, ...]


def layer_chains(architecture: Architecture) -> tuple[Chain, ...] | None:
    """Return the chains of the model, each after its source; None if a module is not one of these layers.

    Outputs have the names in `protocols.framework.objectives.ModelOutputs`; "x" are flattened samples.
    """
    module = architecture.module
    if architecture.constants or any(map(_is_altered, module.modules())):
        return None
    if not all(map(_updates_running_statistics, architecture.training_module.modules())):
        return None
    pieces: list[tuple[str, str, list[_Leaf]]] = [("x", "scores", list(_leaves(module)))]
    if type(module) is DecoupledModule:
        pieces = [
            ("x", "features", list(_leaves(module.backbone, "backbone."))),
            ("features", "scores", [("", nn.ReLU()), ("head.", module.head)]),
        ]
        if module.projection is not None:
            pieces.append(("features", "projections", list(_leaves(module.projection, "projection."))))
    first = pieces[0][2]
    if len(architecture.input_shape) > 1 and not (first and type(first[0][1]) is nn.Flatten):
        return None
    chains = []
    for source, output, leaves in pieces:
        layers = _layers(leaves, passes=source != "x")
        if layers is None:
            return None
        chains.append(Chain(source, output, layers))
    return tuple(chains) if _cover_parameters(architecture, chains) else None


def _cover_parameters(architecture: Architecture, chains: Sequence[Chain]) -> bool:
    """Return True if the layers, and a decoupled model's direct parameters, contain each parameter once."""
    layers = [layer for chain in chains for layer in chain.layers]
    untrained = [name for layer in layers if isinstance(layer, Norm) for name in layer.statistics]
    names = [name for layer in layers for name in layer.trained] + untrained
    if type(architecture.module) is DecoupledModule:
        names += [part.name for part in architecture.slices if "." not in part.name]
        untrained += architecture.module.untrained
    found = [part.name for part in architecture.slices], [part.name for part in architecture.untrained]
    return (sorted(names), sorted(untrained)) == (sorted(found[0]), sorted(found[1]))


_Leaf = tuple[str, nn.Module]


def _leaves(module: nn.Module, prefix: str = "") -> Iterator[_Leaf]:
    """Yield the modules of nested sequences, in order, each with the prefix of its parameters."""
    if type(module).forward is not nn.Sequential.forward:
        yield prefix, module
        return
    for name, part in module._modules.items():  # `children` omits repeated modules
        assert part is not None
        yield from _leaves(part, f"{prefix}{name}.")


def _layers(leaves: Iterable[_Leaf], *, passes: bool) -> tuple[Layer, ...] | None:
    """Return the layers of modules, for flat values; None if a module has no layer."""
    layers: list[Layer] = []
    for prefix, part in leaves:
        names = f"{prefix}weight", f"{prefix}bias"
        if type(part) is nn.Linear and part.bias is not None:
            layers.append(Linear(names, passes or bool(layers)))
        elif type(part) is nn.ReLU:
            layers.append(Rectifier(in_place=bool(layers)))
        elif isinstance(part, BatchNorm) and _takes_flat_values(part):
            statistics = f"{prefix}running_mean", f"{prefix}running_var"
            layers.append(Norm(names, statistics, part.eps, part.momentum))
        elif type(part) is not nn.Flatten or (part.start_dim, part.end_dim) != (1, -1):
            return None
    return tuple(layers)


def _takes_flat_values(part: BatchNorm) -> bool:
    """Return True if a norm takes one number per channel and sample, and has a weight and a bias."""
    return type(part) in (BatchNorm, BatchNorm1d) and part.weight is not None and part.bias is not None


def _is_altered(part: nn.Module) -> bool:
    """Return True if a module's behavior is changed by hooks or a replaced `forward`."""
    return "forward" in vars(part) or any(getattr(part, hooks) for hooks in _HOOKS)


def _updates_running_statistics(part: nn.Module) -> bool:
    """Return False for a batch norm that the model's `train` keeps in evaluation mode; True for others."""
    return not isinstance(part, BatchNorm) or (part.training and part.track_running_stats)
