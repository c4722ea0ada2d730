"""Chains of linear layers and ReLUs under cross-entropy, for many clients at once, with the gradient by hand.

A batch of such models is a few batched matrix products. Written out they cost a tenth of what `vmap` and
autograd spend on finding that out anew in every call.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sim.learning.architecture import Architecture
from sim.learning.objectives import Objective, cross_entropy


@dataclass(frozen=True)
class Layer:
    """Where a linear layer's weight [outputs, inputs] and bias [outputs] begin in the flat vector."""

    inputs: int
    outputs: int
    weight: int
    bias: int


class DenseChain:
    """Linear layers with a ReLU between each two, behind a flattening of the input.

    flat: parameters [N, P]; x: samples [N, B, ...]; y: classes [N, B]; row n of each belongs to client n.

    Under autocast the products are bfloat16. What is between them and the gradient stays float32: `float()`
    and `dtype=` below, which do nothing otherwise.
    """

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        self.layers = layers
        self._minus_one = torch.full((1, 1, 1), -1.0)

    @staticmethod
    def of(architecture: Architecture, objective: Objective) -> DenseChain | None:
        """The chain that this architecture is, under cross-entropy; None for all others."""
        module = architecture.module
        if objective is not cross_entropy or not isinstance(module, nn.Sequential):
            return None
        flatten, *others = module.children()
        linear, relus = others[::2], others[1::2]
        if (
            type(flatten) is not nn.Flatten
            or (flatten.start_dim, flatten.end_dim) != (1, -1)
            or len(linear) != len(relus) + 1
            or any(type(part) is not nn.Linear or part.bias is None for part in linear)
            or any(type(part) is not nn.ReLU for part in relus)
        ):
            return None
        offsets = {part.name: part.offset for part in architecture.slices}
        layers = []
        for place, part in enumerate(linear):
            assert isinstance(part, nn.Linear)
            name = f"{1 + 2 * place}"
            layers.append(
                Layer(part.in_features, part.out_features, offsets[f"{name}.weight"], offsets[f"{name}.bias"])
            )
        return DenseChain(tuple(layers))

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        """Class scores [N, B, K]."""
        return self._forward(flat, x)[-1].transpose(1, 2)

    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Mean cross-entropy of each client over its batch, [N]."""
        logarithms = self._forward(flat, x)[-1].float().log_softmax(dim=1)
        return -logarithms.gather(1, y.unsqueeze(1)).mean(dim=(1, 2))

    def gradients(self, flat: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, None]:
        """Gradient of each client's mean cross-entropy over its batch, [N, P]; no parameter is untrained."""
        *inputs, scores = self._forward(flat, x)
        clients, batch = y.shape
        # Of the mean loss with respect to the scores: (softmax - one-hot) / B.
        error = scores.float().softmax(dim=1)
        if self._minus_one.device != error.device:
            self._minus_one = self._minus_one.to(error.device)
        error.scatter_add_(1, y.unsqueeze(1), self._minus_one.expand(clients, 1, batch))
        error.div_(batch)
        gradient = torch.empty_like(flat)
        for place in range(len(self.layers) - 1, -1, -1):
            weight, bias = self._parts(gradient, self.layers[place])
            # Not bmm(..., out=weight), which takes three times as long.
            weight.copy_(error.bmm(inputs[place].transpose(1, 2)))
            torch.sum(error, dim=2, dtype=bias.dtype, out=bias)
            if place:
                error = self._parts(flat, self.layers[place])[0].transpose(1, 2).bmm(error)
                error = torch.ops.aten.threshold_backward(error, inputs[place], 0.0)  # through the ReLU
        return gradient, None

    def _forward(self, flat: Tensor, x: Tensor) -> list[Tensor]:
        """The input of every layer, and the scores: [N, features, B], in which the products are fastest."""
        values = [x.flatten(2).transpose(1, 2)]
        for place, layer in enumerate(self.layers):
            weight, bias = self._parts(flat, layer)
            value = torch.baddbmm(bias.unsqueeze(2), weight, values[-1])
            values.append(value if place == len(self.layers) - 1 else value.relu_())
        return values

    def _parts(self, flat: Tensor, layer: Layer) -> tuple[Tensor, Tensor]:
        """Weights [N, outputs, inputs] and biases [N, outputs] of a layer, as views of [N, P]."""
        clients, count = flat.shape[0], layer.inputs * layer.outputs
        weight = flat.narrow(1, layer.weight, count).view(clients, layer.outputs, layer.inputs)
        return weight, flat.narrow(1, layer.bias, layer.outputs)
