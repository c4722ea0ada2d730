"""Chains of linear layers and ReLUs under cross-entropy, for many clients at once, with the gradient by hand.

Written out, its few batched products cost a tenth of what `vmap` and autograd spend on finding them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sim.learning.architecture import Architecture
from sim.learning.engine.backends.backend import Backend
from sim.learning.objectives import Objective, cross_entropy


@dataclass(frozen=True)
class Layer:
    """Where a linear layer's weight [outputs, inputs] and bias [outputs] begin in the flat vector."""

    inputs: int
    outputs: int
    weight: int
    bias: int


Parts = list[tuple[Tensor, Tensor]]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _is_altered(part: nn.Module) -> bool:
    """Whether a module does more than its class says."""
    return "forward" in vars(part) or any(getattr(part, hooks) for hooks in _HOOKS)


class DenseChain(Backend):
    """Linear layers with a ReLU between each two, behind a flattening of the input.

    Under autocast the products are bfloat16. What is between them and the gradient stays float32: `float()`
    and `dtype=` below, which do nothing otherwise.
    """

    limits = "only for linear layers and ReLUs under cross-entropy"

    def __init__(self, architecture: Architecture, objective: Objective) -> None:
        super().__init__(architecture, objective)
        offsets = {part.name: part.offset for part in architecture.slices}
        self.layers = tuple(
            Layer(part.in_features, part.out_features, offsets[f"{name}.weight"], offsets[f"{name}.bias"])
            for name, part in architecture.module._modules.items()
            if isinstance(part, nn.Linear)
        )
        self._minus_one = torch.full((1, 1, 1), -1.0)

    @classmethod
    def suits(cls, architecture: Architecture, objective: Objective) -> bool:
        module = architecture.module
        if objective is not cross_entropy or type(module).forward is not nn.Sequential.forward:
            return False
        if architecture.constants or any(map(_is_altered, module.modules())):
            return False
        flatten, *others = module._modules.values()  # `children` leaves out what is used a second time
        linear, relus = others[::2], others[1::2]
        return (
            type(flatten) is nn.Flatten
            and (flatten.start_dim, flatten.end_dim) == (1, -1)
            and len(linear) == len(relus) + 1
            and all(type(part) is nn.Linear and part.bias is not None for part in linear)
            and all(type(part) is nn.ReLU for part in relus)
            and len(architecture.slices) == 2 * len(linear)  # else some are tied
        )

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        return self._forward(self._parts(flat), x)[-1].transpose(1, 2)

    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return -self._likelihoods(flat, x, y).mean(dim=(1, 2))

    def losses_of_each(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return -self._likelihoods(flat, x, y)[:, 0]

    def _likelihoods(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of what each sample's class is given, [N, 1, B]."""
        logarithms = self._forward(self._parts(flat), x)[-1].float().log_softmax(dim=1)
        return logarithms.gather(1, y.unsqueeze(1))

    def gradients(
        self, flat: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, None]:
        gradient = torch.empty_like(flat)
        into, share = self._parts(gradient), 1 / y.shape[1]
        for place, *sums in self._backward(self._parts(flat), x, y, weights):
            for part, total in zip(into[place], sums, strict=True):
                torch.mul(total.float(), share, out=part)
        return gradient, None

    def descend(
        self, flat: Tensor, x: Tensor, y: Tensor, rate: float | Tensor, weights: Tensor | None = None
    ) -> None:
        """Without ever making the gradient one vector."""
        parts, batch = self._parts(flat), -float(y.shape[1])
        # In float32 in both cases: a client's numbers do not depend on the others' rates.
        factor = float(np.float32(rate) / np.float32(batch)) if isinstance(rate, float) else rate / batch
        for place, of_weight, of_bias in self._backward(parts, x, y, weights):
            weight, bias = parts[place]
            if isinstance(factor, float):
                weight.add_(of_weight, alpha=factor)
                bias.add_(of_bias, alpha=factor)
            else:
                weight.addcmul_(of_weight, factor.unsqueeze(2))
                bias.addcmul_(of_bias, factor)

    def _backward(
        self, parts: Parts, x: Tensor, y: Tensor, weights: Tensor | None
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The layers, last one first: place, and gradients of the SUM of the losses of a batch with respect
        to its weights and biases. A layer may be changed as soon as it is there.
        """
        *inputs, scores = self._forward(parts, x)
        clients, batch = y.shape
        # Of the loss with respect to the scores: softmax - one-hot.
        error = scores.float().softmax(dim=1)
        if self._minus_one.device != error.device:
            self._minus_one = self._minus_one.to(error.device)
        error.scatter_add_(1, y.unsqueeze(1), self._minus_one.expand(clients, 1, batch))
        if weights is not None:
            error.mul_(weights.unsqueeze(1))
        for place in range(len(self.layers) - 1, -1, -1):
            passed_on = parts[place][0].transpose(1, 2).bmm(error) if place else error
            # Not bmm(..., out=) into a row of parameters, which takes three times as long.
            of_weight = error.bmm(inputs[place].transpose(1, 2))
            yield place, of_weight, torch.sum(error, dim=2, dtype=torch.float32)
            if place:
                error = torch.ops.aten.threshold_backward(passed_on, inputs[place], 0.0)  # through the ReLU

    def _forward(self, parts: Parts, x: Tensor) -> list[Tensor]:
        """The input of every layer, and the scores: [N, features, B], in which the products are fastest."""
        values = [x.flatten(2).transpose(1, 2)]
        for place, (weight, bias) in enumerate(parts):
            if len(values[-1]) < len(weight) and not torch.is_autocast_enabled(x.device.type):
                # All clients share the input: one product of all their weights with it.
                value = torch.matmul(weight, values[-1][0]).add_(bias.unsqueeze(2))
            else:  # which in bfloat16 rounds once, not twice
                value = torch.baddbmm(bias.unsqueeze(2), weight, values[-1].expand(len(weight), -1, -1))
            values.append(value if place == len(parts) - 1 else value.relu_())
        return values

    def _parts(self, flat: Tensor) -> Parts:
        """Weights [N, outputs, inputs] and biases [N, outputs] of each layer, as views of [N, P]."""
        parts = []
        for layer in self.layers:
            weight = flat.narrow(1, layer.weight, layer.inputs * layer.outputs)
            shaped = weight.view(flat.shape[0], layer.outputs, layer.inputs)
            parts.append((shaped, flat.narrow(1, layer.bias, layer.outputs)))
        return parts
