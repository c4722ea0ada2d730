"""Loss and gradient of many clients at once, in the way that suits the model and the device.

All ways compute the same numbers up to rounding:

- `dense`: a chain of linear layers and ReLUs as batched matrix products (sim.learning.engine.dense);
- `vmap`: any model, by `torch.func.vmap`;
- `loop`: any model, one client after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.overrides import TorchFunctionMode

from sim.errors import UserError
from sim.learning.architecture import Architecture, TrainingPass
from sim.learning.engine.dense import DenseChain
from sim.learning.engine.precision import PRECISIONS, cast
from sim.learning.objectives import Objective

_FEW_CLIENTS = 48
"""Up to so many, vmapping the backward pass costs more in Python than it saves (measured on a CPU)."""


WAYS = ("auto", "dense", "vmap", "loop")


class Way(Protocol):
    """flat: parameters [N, P]; x: samples [N, B, ...]; y: targets [N, B]; row n of each is client n's.

    Losses and outputs are those of evaluation: batch norms take their running statistics. For outputs, x may
    be [1, B, ...]: samples that all clients share.
    """

    def gradients(self, flat: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """Gradient of each client's mean loss over its batch, [N, P], with batch norms in training mode.

        It is 0 for the U untrained parameters. Second, what these are after the step, [N, U]; None if U = 0.
        """

    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss of each client over its batch, [N]."""

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        """Model outputs, e.g. class scores [N, B, K]."""


Named = dict[str, Tensor]


class Vmapped:
    """All clients in one call of `torch.func.vmap`."""

    def __init__(self, architecture: Architecture, objective: Objective) -> None:
        def loss(params: Named, x: Tensor, y: Tensor) -> Tensor:
            return objective(architecture, params, x, y)

        def training_loss(trained: Named, untrained: Named, x: Tensor, y: Tensor) -> tuple[Tensor, Named]:
            model = TrainingPass(architecture, untrained)
            return objective(model, trained | untrained, x, y), model.untrained

        self._architecture = architecture
        self._gradient = vmap(grad(training_loss, has_aux=True))
        self._training_loss = vmap(training_loss)
        self._loss = vmap(loss)
        self._outputs = vmap(architecture.forward)
        self._outputs_of_shared = vmap(architecture.forward, in_dims=(0, None))
        self._one = Looped(architecture, objective)

    def gradients(self, flat: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        if len(flat) == 1:  # a fourth of the time (measured): nothing is gained from vmap, which isn't free
            return self._one.gradients(flat, x, y)
        # With respect to the stacked views, not to `flat`: the backward of slicing a flat vector would fill a
        # zero vector of full width for every parameter tensor.
        trained, untrained = _divided(self._architecture, flat)
        of_few = len(flat) <= _FEW_CLIENTS
        gradient, after = (self._gradient_of_few if of_few else self._gradient)(trained, untrained, x, y)
        return self._stacked(gradient, after)

    def _stacked(self, gradient: Named, after: Named) -> tuple[Tensor, Tensor | None]:
        """As `gradients`. after: what the untrained parameters are after the step."""
        still = {name: torch.zeros_like(values) for name, values in after.items()}
        side_by_side = torch.cat([values.flatten(1) for values in after.values()], dim=1) if after else None
        return self._architecture.flatten(gradient | still), side_by_side

    def _gradient_of_few(self, trained: Named, untrained: Named, x: Tensor, y: Tensor) -> tuple[Named, Named]:
        """As `_gradient`, but only the forward pass under vmap.

        A client's loss depends on its own parameters alone, so the gradient of the sum of all losses holds
        that of each. The backward pass is then one of ordinary batched operations.
        """
        leaves = {name: view.detach().requires_grad_() for name, view in trained.items()}
        with torch.enable_grad():
            losses, after = self._training_loss(leaves, untrained, x, y)
        gradients = torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, gradients, strict=True)), after

    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self._loss(self._architecture.unflatten(flat), x, y)

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        params = self._architecture.unflatten(flat)
        return self._outputs(params, x) if len(x) == len(flat) else self._outputs_of_shared(params, x[0])


class _WeightsFirst(TorchFunctionMode):
    """Within it, images meet a convolution with more weights than inputs channels first, like its weights.

    Otherwise a training step would copy these weights three times (for the forward pass, for the backward
    pass, and into their gradient), which costs more than `_channels_last` gains on small images (measured).
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.conv2d and len(args) == 7:  # so torch.nn.Conv2d calls it
            x, weight, *others = args
            # Kernels of 1x1 lie the same in both layouts.
            if x.device.type == "cpu" and weight.shape[2:] != (1, 1) and weight.numel() > x.numel():
                args = (x.contiguous(), weight, *others)
        return func(*args, **(kwargs or {}))


class Looped:
    """One client after the other."""

    def __init__(self, architecture: Architecture, objective: Objective) -> None:
        self._architecture = architecture
        self._objective = objective
        # Without convolutions it would only cost time, at every function of torch.
        self._layout = _WeightsFirst() if architecture.has_convolution else nullcontext()

    def gradients(self, flat: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        gradient = torch.empty_like(flat)
        rows = []
        for row, own_x, own_y, into in zip(flat, _channels_last(x), y, gradient, strict=True):
            parts, after = self._gradient(row, own_x, own_y)
            parts |= {name: torch.zeros_like(values) for name, values in after.items()}
            torch.cat([parts[part.name].reshape(-1) for part in self._architecture.slices], out=into)
            if after:
                rows.append(torch.cat([values.reshape(-1) for values in after.values()]))
        return gradient, torch.stack(rows) if rows else None

    def descend(self, flat: Tensor, x: Tensor, y: Tensor, rate: float | Tensor) -> None:
        """One step of plain SGD, in place: without the copies that make the gradient one vector."""
        rates = [rate] * len(flat) if isinstance(rate, float) else rate[:, 0].tolist()
        for row, own_x, own_y, own_rate in zip(flat, _channels_last(x), y, rates, strict=True):
            parts, after = self._gradient(row, own_x, own_y)
            for name, values in self._architecture.unflatten(row).items():
                if name in parts:
                    values.sub_(parts[name], alpha=own_rate)
                else:
                    values.copy_(after[name])

    def _gradient(self, row: Tensor, x: Tensor, y: Tensor) -> tuple[Named, Named]:
        """Gradients of the trained parameters, and what the untrained ones are after the step."""
        trained, untrained = _divided(self._architecture, row)
        leaves = {name: view.detach().requires_grad_() for name, view in trained.items()}
        model = TrainingPass(self._architecture, untrained)
        # A parameter that the loss does not use gets zeros, as under vmap.
        with torch.enable_grad(), self._layout:
            loss = self._objective(model, leaves | untrained, x, y)
        gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, gradients, strict=True)), model.untrained

    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self._each(self._loss, flat, _channels_last(x), y)

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        return self._each(self._architecture.forward, flat, _channels_last(x.expand(len(flat), *x.shape[1:])))

    def _loss(self, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self._objective(self._architecture, params, x, y)

    def _each(self, function: Callable[..., Tensor], *stacked: Iterable[Tensor]) -> Tensor:
        with self._layout:
            return torch.stack([function(*own) for own in zip(*stacked, strict=True)])


def _channels_last(x: Tensor) -> Iterable[Tensor]:
    """The samples [B, ...] of each client, x [N, B, ...]; images on a CPU channels last.

    So it pools and convolves them faster (measured).
    """
    if x.dim() != 5 or x.device.type != "cpu":
        return x
    return [images.to(memory_format=torch.channels_last) for images in x]


def _divided(architecture: Architecture, flat: Tensor) -> tuple[Named, Named]:
    """Views of a vector's trained and of its untrained parameters."""
    trained = architecture.unflatten(flat)
    return trained, {part.name: trained.pop(part.name) for part in architecture.untrained}


def possible_ways(architecture: Architecture, objective: Objective) -> tuple[str, ...]:
    """The ways in which this model can be computed."""
    is_chain = DenseChain.of(architecture, objective) is not None
    return ("dense", "vmap", "loop") if is_chain else ("vmap", "loop")


def choose_way(way: str, architecture: Architecture, objective: Objective, device: torch.device) -> str:
    """Resolve "auto"; UserError for "dense" where the model is no dense chain.

    On a CPU convolutions under vmap lose to a loop; all else gains from batching
    (docs/benchmarks.md).
    """
    if way not in WAYS:
        raise ValueError(f"the way of computing is one of {', '.join(WAYS)}, not {way!r}")
    possible = possible_ways(architecture, objective)
    if way == "dense" and "dense" not in possible:
        raise UserError(
            f'engine.way = "dense": only for linear layers and ReLUs under cross-entropy, and this model is '
            f'{architecture.key}; use "auto", "fastest", "vmap" or "loop"'
        )
    if way != "auto":
        return way
    if "dense" in possible:
        return "dense"
    return "loop" if device.type == "cpu" and architecture.has_convolution else "vmap"


class Kernel:
    """The mathematics of one architecture and objective, computed in one `way`; arguments as in `Way`.

    No argument requires a gradient, so that torch keeps no graph of what is done here. All numbers that go in
    and come out are float32; `precision` is one of `sim.learning.engine.precision.PRECISIONS` and says how
    products are computed between. ("tf32" is float32 here; what allows it is process-wide, `tensor_cores`.)
    """

    def __init__(
        self, architecture: Architecture, objective: Objective, way: str, precision: str = "float32"
    ) -> None:
        if precision not in PRECISIONS:
            raise ValueError(f"the precision is one of {', '.join(PRECISIONS)}, not {precision!r}")
        self.architecture = architecture
        self.objective = objective
        self.way = way
        self.precision = precision
        chain = DenseChain.of(architecture, objective) if way == "dense" else None
        kinds: Mapping[str, Callable[..., Way]] = {"vmap": Vmapped, "loop": Looped}
        self._untrained_columns = architecture.untrained_columns
        self._way = kinds[way](architecture, objective) if chain is None else chain

    def gradients(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Gradient of each client's mean loss over its batch, [N, P]; 0 for untrained parameters."""
        return self.training_gradients(flat, x, y)[0]

    def training_gradients(self, flat: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """The gradients, and for `settle` what the untrained parameters are after the step."""
        with cast(self.precision, flat.device):
            return self._way.gradients(flat, x, y)

    def settle(self, flat: Tensor, untrained: Tensor | None) -> None:
        """Set the untrained parameters, in place, whatever an optimizer made of them. untrained: [N, U]."""
        if untrained is None:
            return
        if self._untrained_columns.device != flat.device:
            self._untrained_columns = self._untrained_columns.to(flat.device)
        flat.index_copy_(1, self._untrained_columns, untrained)

    def descend(self, flat: Tensor, x: Tensor, y: Tensor, rate: float | Tensor) -> None:
        """One step of plain SGD, in place; rate: one for all, or [N, 1]."""
        way = self._way
        # On CUDA the loop's own step would wait for the device to tell it rates that differ.
        waits = isinstance(way, Looped) and isinstance(rate, Tensor) and flat.device.type == "cuda"
        if isinstance(way, DenseChain | Looped) and not waits:
            with cast(self.precision, flat.device):
                way.descend(flat, x, y, rate)
            return
        gradient, untrained = self.training_gradients(flat, x, y)
        if isinstance(rate, float):
            flat.sub_(gradient, alpha=rate)
        else:
            flat.addcmul_(gradient, rate, value=-1.0)
        self.settle(flat, untrained)

    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss of each client over its batch, [N]."""
        with cast(self.precision, flat.device):
            return self._way.losses(flat, x, y).float()

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        """Model outputs, e.g. class scores [N, B, K]; x [N, B, ...], or [1, B, ...] where all share it."""
        with cast(self.precision, flat.device):
            return self._way.outputs(flat, x).float()

    def features(self, row: Tensor, x: Tensor) -> Tensor:
        """Features z [B, d_z] of one client's decoupled model [P], in evaluation."""
        with cast(self.precision, row.device):
            return self.architecture.embed(row, x).features.float()
