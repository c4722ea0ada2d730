"""Backend that computes one client after the other: for any model, and fastest for convolutions on a CPU."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sim.learning.architecture import Architecture, TrainingPass
from sim.learning.engine.backends.backend import Backend, Named, split_trained_parameters
from sim.learning.objectives import Objective, loss_of_each, mean_loss


class Looped(Backend):
    """One client after the other."""

    def __init__(self, architecture: Architecture, objective: Objective) -> None:
        super().__init__(architecture, objective)
        # Without convolutions it would only take time, at every function of torch.
        self._layout = _ChannelsFirstImages() if architecture.has_convolution else nullcontext()

    def gradients(
        self, flat: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        gradient = torch.empty_like(flat)
        untrained = []
        batches = zip(flat, _channels_last(x), _targets(y, weights), gradient, strict=True)
        for params, samples, targets, into in batches:
            parts, after = self._gradient(params, samples, *targets)
            parts |= {name: torch.zeros_like(values) for name, values in after.items()}
            torch.cat([parts[part.name].reshape(-1) for part in self.architecture.slices], out=into)
            if after:
                untrained.append(torch.cat([values.reshape(-1) for values in after.values()]))
        return gradient, torch.stack(untrained) if untrained else None

    def descend(
        self, flat: Tensor, x: Tensor, y: Tensor, rate: float | Tensor, weights: Tensor | None = None
    ) -> None:
        """Compute the step without the copies that form the gradient vector."""
        if isinstance(rate, Tensor) and flat.device.type == "cuda":
            super().descend(flat, x, y, rate, weights)  # the loop would wait for the rates from the device
            return
        rates = [rate] * len(flat) if isinstance(rate, float) else rate[:, 0].tolist()
        batches = zip(flat, _channels_last(x), _targets(y, weights), rates, strict=True)
        for params, samples, targets, step in batches:
            parts, after = self._gradient(params, samples, *targets)
            for name, values in self.architecture.unflatten(params).items():
                if name in parts:
                    values.sub_(parts[name], alpha=step)
                else:
                    values.copy_(after[name])

    def _gradient(self, params: Tensor, x: Tensor, *targets: Tensor) -> tuple[Named, Named]:
        """Return the gradients of the trained parameters, and the untrained ones after the step."""
        trained, untrained = split_trained_parameters(self.architecture, params)
        leaves = {name: view.detach().requires_grad_() for name, view in trained.items()}
        model = TrainingPass(self.architecture, untrained)
        # A parameter that the loss does not use gets zeros, as under vmap.
        with torch.enable_grad(), self._layout:
            loss = mean_loss(self.objective, model, leaves | untrained, x, *targets)
        gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, gradients, strict=True)), model.untrained

    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self._each(partial(self.objective, self.architecture), flat, _channels_last(x), y)

    def losses_of_each(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        of_each = partial(loss_of_each(self.objective), self.architecture)
        return self._each(of_each, flat, _channels_last(x), y)

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        samples = list(_channels_last(x))
        shared = len(samples) < len(flat)
        return self._each(self.architecture.forward, flat, samples * len(flat) if shared else samples)

    def _each(self, function: Callable[..., Tensor], *stacked: Iterable[Tensor]) -> Tensor:
        with self._layout:
            return torch.stack([function(*arguments) for arguments in zip(*stacked, strict=True)])


def _targets(y: Tensor, weights: Tensor | None) -> list[tuple[Tensor, ...]]:
    """Return each client's targets, with the weights of its samples, if any."""
    return list(zip(y, strict=True)) if weights is None else list(zip(y, weights, strict=True))


class _ChannelsFirstImages(TorchFunctionMode):
    """Mode in which a convolution with more weights than inputs gets channels-first images, like its weights.

    Otherwise a training step would copy these weights three times, which costs more than `_channels_last`
    saves on small images (measured).
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.conv2d and len(args) == 7:  # the call in torch.nn.Conv2d
            x, weight, *others = args
            # Kernels of 1x1 are equal in both layouts.
            if x.device.type == "cpu" and weight.shape[2:] != (1, 1) and weight.numel() > x.numel():
                args = (x.contiguous(), weight, *others)
        return func(*args, **(kwargs or {}))


def _channels_last(x: Tensor) -> Iterable[Tensor]:
    """Return the samples [B, ...] of each client from x [N, B, ...]; images on a CPU in channels-last layout.

    Pooling and convolutions are faster in this layout (measured).
    """
    if x.dim() != 5 or x.device.type != "cpu":
        return x
    return [images.to(memory_format=torch.channels_last) for images in x]
