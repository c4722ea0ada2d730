"""Hypernetwork: a perceptron that generates the parameters of a model from a short vector.

Inputs [N] -> hidden layers -> parameters [P] of the model, with a linear output. The hypernetwork's own
parameters are one flat vector: for each layer the matrix [out, in], row by row, then the biases [out].

Training it requires neither the data nor the model's architecture: clients get the model, and answer with
gradients at the model, or with the change that training made. The chain rule converts the answers into
gradients with respect to the hypernetwork's parameters and inputs. All functions run under `apply`, except
for `size` and `initial`.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]


def size(widths: Sequence[int]) -> int:
    """Return the number of parameters of a hypernetwork with layers of these widths: (N, hidden ..., P)."""
    return sum(out * (into + 1) for into, out in itertools.pairwise(widths))


def initial(widths: Sequence[int], rng: np.random.Generator, spread: float = 1.0) -> Floats:
    """Return the initial flat parameters without the last layer's biases, which `append_start_model` adds.

    They are uniform within 1/sqrt(inputs of the layer), as usual; the last layer's matrix is scaled by
    `spread`.
    """
    parts: list[Floats] = []
    for number, (into, out) in enumerate(itertools.pairwise(widths)):
        last, bound = number == len(widths) - 2, 1.0 / math.sqrt(into)
        parts.append((spread if last else 1.0) * rng.uniform(-bound, bound, out * into))
        if not last:
            parts.append(rng.uniform(-bound, bound, out))
    return np.concatenate(parts)


def append_start_model(first: Tensor, start: Tensor) -> Tensor:
    """Append the model [P] `start`, near which generated models begin, to the parameters `first`."""
    return torch.cat([first, start])


def generated(weights: Tensor, inputs: Tensor, widths: tuple[int, ...], leak: float | None) -> Tensor:
    """Return the model [P] for the flat parameters and the inputs [N].

    leak: slope of the hidden layers' activation below 0, 0 for ReLU; None for no activation.
    """
    return _activations(weights, inputs, widths, leak)[-1]


def backpropagate(
    weights: Tensor, inputs: Tensor, gradient: Tensor, widths: tuple[int, ...], leak: float | None
) -> tuple[Tensor, Tensor]:
    """Return the gradients of a loss with respect to the flat parameters and to the inputs [N].

    gradient: the gradient of the loss with respect to the model [P].
    """
    activations = _activations(weights, inputs, widths, leak)
    *behind, of_inputs = _gradients(weights, activations, gradient, widths, leak)
    parts: list[Tensor] = []
    for of_outputs, before in zip(behind, reversed(activations[:-1]), strict=True):
        parts = [torch.outer(of_outputs, before).flatten(), of_outputs, *parts]
    return torch.cat(parts), of_inputs


def input_gradient(
    weights: Tensor, inputs: Tensor, gradient: Tensor, widths: tuple[int, ...], leak: float | None
) -> Tensor:
    """Return the gradient of a loss with respect to the inputs [N] only.

    gradient: the gradient of the loss with respect to the model [P].
    """
    return _gradients(weights, _activations(weights, inputs, widths, leak), gradient, widths, leak)[-1]


def add_input(weights: Tensor, widths: tuple[int, ...]) -> Tensor:
    """Return the flat parameters for one more input; its first-layer column is the mean of the others.

    The hypernetwork then treats the newcomer as the average of all others, until it has learned more.
    """
    into, out = widths[0], widths[1]
    matrix = weights[: out * into].reshape(out, into)
    wider = torch.cat([matrix, matrix.mean(dim=1, keepdim=True)], dim=1)
    return torch.cat([wider.flatten(), weights[out * into :]])


def _gradients(
    weights: Tensor,
    activations: list[Tensor],
    gradient: Tensor,
    widths: tuple[int, ...],
    leak: float | None,
) -> list[Tensor]:
    """Return the gradients with respect to each layer's outputs before activation, and to the inputs.

    The last layer comes first, and the inputs come last.
    """
    found = [gradient]
    for layer, (matrix, _) in reversed(list(enumerate(_layers(weights, widths)))):
        gradient = matrix.T @ gradient
        if leak is not None and layer > 0:
            # The output of the activation is above 0 where its input was.
            gradient = gradient * torch.where(activations[layer] > 0, 1.0, leak)
        found.append(gradient)
    return found


def _layers(weights: Tensor, widths: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Return each layer's matrix [out, in] and biases [out]."""
    layers, at = [], 0
    for into, out in itertools.pairwise(widths):
        matrix = weights[at : at + out * into].view(out, into)
        at += out * (into + 1)
        layers.append((matrix, weights[at - out : at]))
    return layers


def _activations(
    weights: Tensor, inputs: Tensor, widths: tuple[int, ...], leak: float | None
) -> list[Tensor]:
    """Return the inputs, the outputs of each hidden layer, and the last layer's outputs."""
    layers, found = _layers(weights, widths), [inputs]
    for number, (matrix, bias) in enumerate(layers):
        outputs = matrix @ found[-1] + bias
        if leak is not None and number < len(layers) - 1:
            outputs = torch.where(outputs > 0, outputs, leak * outputs)
        found.append(outputs)
    return found
