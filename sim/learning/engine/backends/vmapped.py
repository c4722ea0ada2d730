"""All clients in one call of `torch.func.vmap`: for any model without recurrent layers."""

from functools import partial

import torch
from torch import Tensor
from torch.func import grad, vmap

from sim.learning.architecture import Architecture, TrainingPass
from sim.learning.engine.backends.backend import Backend, Named, split_trained_parameters
from sim.learning.engine.backends.fast_vmap import prepare_gradients
from sim.learning.engine.backends.looped import Looped
from sim.learning.objectives import Objective, loss_of_each, mean_loss

_FORWARD_ONLY_CLIENTS_MAX = 48
"""Largest number of clients for which vmapping the backward pass costs more than it saves (CPU, measured)."""


class Vmapped(Backend):
    """All clients in one call of `torch.func.vmap`."""

    limits = "does not support recurrent layers"

    def __init__(self, architecture: Architecture, objective: Objective) -> None:
        super().__init__(architecture, objective)

        def training_loss(
            trained: Named, untrained: Named, x: Tensor, *targets: Tensor
        ) -> tuple[Tensor, Named]:
            model = TrainingPass(architecture, untrained)
            return mean_loss(objective, model, trained | untrained, x, *targets), model.untrained

        self._gradient = vmap(grad(training_loss, has_aux=True))
        self._training_loss = vmap(training_loss)
        self._loss = vmap(partial(objective, architecture))
        self._outputs = vmap(architecture.forward)
        self._outputs_of_shared = vmap(architecture.forward, in_dims=(0, None))
        self._single = Looped(architecture, objective)

    @classmethod
    def suits(cls, architecture: Architecture, objective: Objective) -> bool:
        return not architecture.is_recurrent

    def gradients(
        self, flat: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        if len(flat) == 1:  # without vmap's overhead: a fourth of the time (measured)
            return self._single.gradients(flat, x, y, weights)
        # With respect to the stacked views, not to `flat`: the backward pass of slicing a flat vector would
        # fill a zero vector of full width for every parameter tensor.
        trained, untrained = split_trained_parameters(self.architecture, flat)
        gradient_of = self._gradient_of_sum
        if len(flat) > _FORWARD_ONLY_CLIENTS_MAX:
            prepare_gradients()
            gradient_of = self._gradient
        targets = (y,) if weights is None else (y, weights)
        gradient, after = gradient_of(trained, untrained, x, *targets)
        still = {name: torch.zeros_like(values) for name, values in after.items()}
        stacked = [values.reshape(len(values), -1) for values in after.values()]
        side_by_side = torch.cat(stacked, dim=1) if after else None
        return self.architecture.flatten(gradient | still), side_by_side

    def _gradient_of_sum(
        self, trained: Named, untrained: Named, x: Tensor, *targets: Tensor
    ) -> tuple[Named, Named]:
        """Return the same as `_gradient`, with only the forward pass under vmap.

        A client's loss depends on its parameters only, so the gradient of the sum contains each client's
        gradient.
        """
        leaves = {name: view.detach().requires_grad_() for name, view in trained.items()}
        with torch.enable_grad():
            losses, after = self._training_loss(leaves, untrained, x, *targets)
        gradients = torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, gradients, strict=True)), after

    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self._loss(self.architecture.unflatten(flat), x, y)

    def losses_of_each(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        of_each = partial(loss_of_each(self.objective), self.architecture)
        return vmap(of_each)(self.architecture.unflatten(flat), x, y)

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        params = self.architecture.unflatten(flat)
        return self._outputs(params, x) if len(x) == len(flat) else self._outputs_of_shared(params, x[0])
