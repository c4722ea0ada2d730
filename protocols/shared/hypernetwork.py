"""A hypernetwork: a perceptron that makes the parameters of a model of a few numbers.

Inputs [N] -> hidden layers -> parameters [P] of the model, linear at its end. Its own parameters are one
flat vector: layer after layer the matrix [out, in], row by row, then the biases [out].

Whoever trains it needs to see neither data nor the model's architecture: clients are sent the model, and
answer with gradients there, or with what training made of it, which the chain rule turns into those of the
hypernetwork's parameters and of its inputs. All are pure functions that run under `apply`.
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
    """Numbers of a hypernetwork whose layers have these widths: (N, hidden ..., P)."""
    return sum(out * (into + 1) for into, out in itertools.pairwise(widths))


def initial(widths: Sequence[int], rng: np.random.Generator, spread: float = 1.0) -> Floats:
    """The flat parameters to begin with, but the last layer's biases: `begun` has these.

    Uniform within 1/sqrt(inputs of the layer), as usual; the last layer's matrix is `spread` times that.
    """
    parts: list[Floats] = []
    for number, (into, out) in enumerate(itertools.pairwise(widths)):
        last, bound = number == len(widths) - 2, 1.0 / math.sqrt(into)
        parts.append((spread if last else 1.0) * rng.uniform(-bound, bound, out * into))
        if not last:
            parts.append(rng.uniform(-bound, bound, out))
    return np.concatenate(parts)


def begun(first: Tensor, start: Tensor) -> Tensor:
    """The flat parameters, of `initial` and of the model [P] near which all that it makes lie at first."""
    return torch.cat([first, start])


def generated(weights: Tensor, inputs: Tensor, widths: tuple[int, ...], leak: float | None) -> Tensor:
    """The model [P], of the flat parameters and the inputs [N].

    leak: slope of the hidden layers' activation below 0, 0 for ReLU; None for no activation at all.
    """
    return _activations(weights, inputs, widths, leak)[-1]


def pulled_back(
    weights: Tensor, inputs: Tensor, gradient: Tensor, widths: tuple[int, ...], leak: float | None
) -> tuple[Tensor, Tensor]:
    """The gradients of a loss by the flat parameters and by the inputs [N], from that by the model [P]."""
    activations = _activations(weights, inputs, widths, leak)
    *behind, of_inputs = _gradients(weights, activations, gradient, widths, leak)
    parts: list[Tensor] = []
    for of_outputs, before in zip(behind, reversed(activations[:-1]), strict=True):
        parts = [torch.outer(of_outputs, before).flatten(), of_outputs, *parts]
    return torch.cat(parts), of_inputs


def slope(
    weights: Tensor, inputs: Tensor, gradient: Tensor, widths: tuple[int, ...], leak: float | None
) -> Tensor:
    """The gradient of a loss by the inputs [N] alone, from that by the model [P]."""
    return _gradients(weights, _activations(weights, inputs, widths, leak), gradient, widths, leak)[-1]


def widened(weights: Tensor, widths: tuple[int, ...]) -> Tensor:
    """The flat parameters with one more input, whose column in the first layer is the mean of the others'.

    So the hypernetwork answers to the newcomer as to all others together, until it has learned better.
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
    """The gradients by what each layer makes before it is activated, the last one first, and by inputs."""
    found = [gradient]
    for layer, (matrix, _) in reversed(list(enumerate(_layers(weights, widths)))):
        gradient = matrix.T @ gradient
        if leak is not None and layer > 0:
            # What the activation has made is above 0 where it was before.
            gradient = gradient * torch.where(activations[layer] > 0, 1.0, leak)
        found.append(gradient)
    return found


def _layers(weights: Tensor, widths: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Each layer's matrix [out, in] and biases [out]."""
    layers, at = [], 0
    for into, out in itertools.pairwise(widths):
        matrix = weights[at : at + out * into].view(out, into)
        at += out * (into + 1)
        layers.append((matrix, weights[at - out : at]))
    return layers


def _activations(
    weights: Tensor, inputs: Tensor, widths: tuple[int, ...], leak: float | None
) -> list[Tensor]:
    """The inputs, what each layer hands to the next, and the last layer's outputs."""
    layers, found = _layers(weights, widths), [inputs]
    for number, (matrix, bias) in enumerate(layers):
        outputs = matrix @ found[-1] + bias
        if leak is not None and number < len(layers) - 1:
            outputs = torch.where(outputs > 0, outputs, leak * outputs)
        found.append(outputs)
    return found
