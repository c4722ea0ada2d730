"""The hypernetwork HN(d): from weights d of the clients' losses to the parameters of one model for them.

"Learning to collaborate", section 4.2 and appendix B.1, after Navon et al., "Learning the Pareto front with
hypernetworks" (2020). Trained on sum_i d_i l_i(HN(d)) for random d on the simplex, it holds the whole Pareto
front of the clients' losses. A perceptron: d [N] -> hidden layers -> parameters [P]; with LeakyReLU between
its layers, or with nothing, so that the parameters are an affine function of d.

Its parameters are one flat vector: layer after layer the matrix [out, in], row by row, then the biases [out].
Whoever trains it sees no client's data, nor the model's architecture: clients are sent HN(d) and answer with
gradients there, which the chain rule turns into those of the hypernetwork's parameters and of d. All are pure
functions that run under `apply`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from protocols.framework.mathematics import project_on_simplex

Floats = NDArray[np.float64]
LEAK = 0.01
"""Slope of LeakyReLU below 0."""


def size(widths: Sequence[int]) -> int:
    """Numbers of a hypernetwork whose layers have these widths: (N, hidden ..., P)."""
    return sum(out * (into + 1) for into, out in itertools.pairwise(widths))


def initial(widths: Sequence[int], start: ArrayLike, spread: float, rng: np.random.Generator) -> Floats:
    """The flat parameters to begin with.

    Uniform within 1/sqrt(inputs of the layer), as usual, but the last layer: its biases are `start` [P], the
    model that all begin with, and its matrix is `spread` times what is usual: with 0, HN(d) = start.
    """
    parts: list[Floats] = []
    pairs = list(itertools.pairwise(widths))
    for number, (into, out) in enumerate(pairs):
        last = number == len(pairs) - 1
        bound = 1.0 / math.sqrt(into)
        parts.append((spread if last else 1.0) * rng.uniform(-bound, bound, out * into))
        parts.append(np.asarray(start, np.float64) if last else rng.uniform(-bound, bound, out))
    return np.concatenate(parts)


def generated(weights: Tensor, d: Tensor, widths: tuple[int, ...], leaky: bool) -> Tensor:
    """HN(d) [P], of its flat parameters and d [N]."""
    return _activations(weights, d, widths, leaky)[-1]


def pulled_back(weights: Tensor, d: Tensor, gradient: Tensor, widths: tuple[int, ...], leaky: bool) -> Tensor:
    """The gradient of a loss by the flat parameters, from that by the model HN(d) [P]."""
    activations = _activations(weights, d, widths, leaky)
    parts: list[Tensor] = []
    for behind, inputs in zip(
        _gradients(weights, activations, gradient, widths, leaky), reversed(activations[:-1]), strict=False
    ):
        parts = [torch.outer(behind, inputs).flatten(), behind, *parts]
    return torch.cat(parts)


def slope(weights: Tensor, d: Tensor, gradient: Tensor, widths: tuple[int, ...], leaky: bool) -> Tensor:
    """The gradient of a loss by d [N], from that by the model HN(d) [P]."""
    return _gradients(weights, _activations(weights, d, widths, leaky), gradient, widths, leaky)[-1]


def _gradients(
    weights: Tensor, activations: list[Tensor], gradient: Tensor, widths: tuple[int, ...], leaky: bool
) -> list[Tensor]:
    """The gradients by what each layer makes before it is activated, from the last layer on, and by d."""
    found = [gradient]
    for place, (matrix, _) in reversed(list(enumerate(_layers(weights, widths)))):
        gradient = matrix.T @ gradient
        if leaky and place > 0:
            # What LeakyReLU has made is above 0 where it was before.
            gradient = gradient * torch.where(activations[place] > 0, 1.0, LEAK)
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


def _activations(weights: Tensor, d: Tensor, widths: tuple[int, ...], leaky: bool) -> list[Tensor]:
    """d, what each layer hands to the next, and the last layer's outputs."""
    layers, found = _layers(weights, widths), [d]
    for number, (matrix, bias) in enumerate(layers):
        outputs = matrix @ found[-1] + bias
        inner = leaky and number < len(layers) - 1
        found.append(torch.where(outputs > 0, outputs, LEAK * outputs) if inner else outputs)
    return found


def widened(weights: ArrayLike, widths: Sequence[int]) -> Floats:
    """The flat parameters with one more input, whose column in the first layer is the mean of the others'.

    So HN answers to the newcomer as to all others together, until it has learned better.
    """
    flat = np.asarray(weights, np.float64)
    into, out = widths[0], widths[1]
    matrix = flat[: out * into].reshape(out, into)
    wider = np.column_stack([matrix, matrix.mean(axis=1)])
    return np.concatenate([wider.ravel(), flat[out * into :]])


def moved(d: ArrayLike, gradient: ArrayLike, rate: float, floor: float, how: str) -> Floats:
    """d [n] after one step down the gradient, with entries from `floor` on that add up to 1.

    how = "clip": clipped to [floor, 1] and divided by the sum (eqs. 27 and 28), after which an entry may be a
    little below the floor. how = "simplex": the nearest point with entries of `floor` at least, the Euclidean
    projection. ValueError for another, and for a floor that so many entries cannot have.
    """
    stepped = np.asarray(d, np.float64) - rate * np.asarray(gradient, np.float64)
    count = stepped.size
    if not 0 <= floor * count < 1:
        raise ValueError(f"{count} weights that add up to 1 cannot all be {floor} or more")
    if how == "clip":
        clipped = np.clip(stepped, floor, 1.0)
        if not clipped.sum() > 0:
            return np.full(count, 1.0 / count)
        return clipped / clipped.sum()
    if how == "simplex":
        return floor + project_on_simplex(stepped - floor, 1.0 - count * floor)
    raise ValueError(f'unknown projection "{how}"; known: clip, simplex')


def necessary(d: ArrayLike, target: int, rule: str, least: float) -> list[int]:
    """The numbers of the optimal collaborators by the weights d [n] that suit a target best, itself included.

    rule = "threshold": weights of more than `least` times the equal share 1/n (appendix B.2). rule =
    "relative": of at least `least` times the target's own weight. ValueError for another rule.
    """
    weights = np.asarray(d, np.float64)
    if rule == "threshold":
        chosen = weights > least / weights.size
    elif rule == "relative":
        chosen = weights >= least * weights[target]
    else:
        raise ValueError(f'unknown rule "{rule}"; known: threshold, relative')
    chosen[target] = True
    return np.flatnonzero(chosen).tolist()
