"""Loss and gradient of many clients at once: one vmapped call, or a plain loop where that is faster.

Both ways compute the same numbers up to rounding; `Kernel.way` says which one a group uses.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad, vmap

from sim.learning.models import Architecture
from sim.learning.objectives import Objective

_FEW_CLIENTS = 48
"""Up to so many, vmapping the backward pass costs more in Python than it saves (measured on a CPU)."""

WAYS = ("auto", "vmap", "loop")


def choose_way(way: str, architecture: Architecture, device: torch.device) -> str:
    """Resolve "auto": on a CPU convolutions under vmap lose to a loop; all else gains from batching."""
    if way not in WAYS:
        raise ValueError(f"the way of computing is one of {', '.join(WAYS)}, not {way!r}")
    if way != "auto":
        return way
    return "loop" if device.type == "cpu" and architecture.has_convolution else "vmap"


class Kernel:
    """Batched mathematics of one architecture and objective.

    flat: parameters [N, P]; x: samples [N, B, ...]; y: targets [N, B]; row n of each belongs to client n.
    """

    def __init__(self, architecture: Architecture, objective: Objective, way: str) -> None:
        self.architecture = architecture
        self.objective = objective
        self.way = way
        self._batched_gradient = vmap(grad(self._loss))
        self._batched_loss = vmap(self._loss)
        self._batched_outputs = vmap(architecture.forward)

    def _loss(self, params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return self.objective(self.architecture, params, x, y)

    def gradients(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Gradient of each client's mean loss over its batch, [N, P]."""
        if self.way == "vmap":
            # With respect to the stacked views, not to `flat`: the backward of slicing a flat vector would
            # fill a zero vector of full width for every parameter tensor.
            stacked = self.architecture.unflatten(flat)
            if len(flat) > _FEW_CLIENTS:
                return self.architecture.flatten(self._batched_gradient(stacked, x, y))
            return self.architecture.flatten(self._gradients_of_few(stacked, x, y))
        return torch.stack(
            [self._gradient_of_one(row, *sample) for row, *sample in zip(flat, x, y, strict=True)]
        )

    def _gradients_of_few(self, stacked: dict[str, Tensor], x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """As `_batched_gradient`, but only the forward pass under vmap.

        A client's loss depends on its own parameters alone, so the gradient of the sum of all losses holds
        that of each. The backward pass is then one of ordinary batched operations.
        """
        leaves = {name: view.detach().requires_grad_() for name, view in stacked.items()}
        total = self._batched_loss(leaves, x, y).sum()
        gradients = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, gradients, strict=True))

    def _gradient_of_one(self, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        params = {
            name: view.detach().requires_grad_() for name, view in self.architecture.unflatten(row).items()
        }
        # A parameter that the loss does not use gets zeros, as under vmap.
        gradients = torch.autograd.grad(
            self._loss(params, x, y), list(params.values()), materialize_grads=True
        )
        return torch.cat([gradient.reshape(-1) for gradient in gradients])

    @torch.no_grad()
    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss of each client over its batch, [N]."""
        if self.way == "vmap":
            return self._batched_loss(self.architecture.unflatten(flat), x, y)
        unflatten = self.architecture.unflatten
        return torch.stack(
            [self._loss(unflatten(row), *sample) for row, *sample in zip(flat, x, y, strict=True)]
        )

    @torch.no_grad()
    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        """Model outputs, e.g. class scores [N, B, K]."""
        if self.way == "vmap":
            return self._batched_outputs(self.architecture.unflatten(flat), x)
        forward, unflatten = self.architecture.forward, self.architecture.unflatten
        return torch.stack([forward(unflatten(row), sample) for row, sample in zip(flat, x, strict=True)])
