"""Attention between models as a prior of the cooperation graph (Li et al. 2023, section 4.3, appendix E).

    p_ij = softmax_j <E(d_i; phi), E(d_j; phi)>,   d_i = theta_i - theta_i^0                     (eqs. 25, 26)

E is a network of two layers, 10 and 5 wide (tanh between them). Its first layer would have ten numbers for
each parameter of the model, too many for gossip, so its input is a sketch of d_i: its coordinates with random
signs, added up in a few hundred groups, scaled to length 1. Inner products of sketches equal the inner
products of the updates, up to noise.

A client takes part in its own row: it is its first candidate (eq. 29 and the authors' code; eq. 58 leaves it
out of the likelihood). All arrays except the sketch are small, and use numpy and torch in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocols.scool.weights import exclusive_entropy

Floats = NDArray[np.float64]

HIDDEN, WIDTH = 10, 5
"""Widths of the encoder's layers."""


def sketch(update: Tensor, signs: Tensor, width: int) -> Tensor:
    """Return a sketch of an update [P]: a unit vector [width], from signs [P] that all clients share.

    An update of zeros stays zero. Written for `Client.apply`.
    """
    signed = update * signs
    padded = torch.nn.functional.pad(signed, (0, -signed.shape[-1] % width))
    sums = padded.reshape(-1, width).sum(dim=0)
    return sums / torch.linalg.vector_norm(sums).clamp(min=1e-12)


def first_encoder(width: int, rng: np.random.Generator) -> Floats:
    """Return the initial phi [n]: in each layer uniform in +-1/sqrt(inputs)."""
    layers = [((width + 1) * HIDDEN, width), ((HIDDEN + 1) * WIDTH, HIDDEN)]
    return np.concatenate([rng.uniform(-1, 1, count) / np.sqrt(inputs) for count, inputs in layers])


def _encoded(encoder: Tensor, sketches: Tensor) -> Tensor:
    """Return the encoder's outputs E [..., WIDTH] for sketches [..., width]."""
    width = sketches.shape[-1]
    first, second = encoder.split([(width + 1) * HIDDEN, (HIDDEN + 1) * WIDTH])
    hidden = torch.tanh(sketches @ first[HIDDEN:].view(width, HIDDEN) + first[:HIDDEN])
    return hidden @ second[WIDTH:].view(HIDDEN, WIDTH) + second[:WIDTH]


def _log_attention(encoder: Tensor, sketches: Tensor) -> Tensor:
    own, *_ = encoded = _encoded(encoder, sketches)
    return torch.log_softmax(encoded @ own, dim=0)


def log_attention(encoder: Floats, sketches: Floats) -> Floats:
    """Return log p_i [n] (eq. 25) for the sketches [n, width] of a client, which is first, and its peers."""
    return np.asarray(_log_attention(torch.from_numpy(encoder), torch.from_numpy(sketches)).numpy())


def encoder_gradient(encoder: Floats, sketches: Floats, weights: Floats) -> Floats:
    """Return the gradient [n] of sum_j w_ij log p_ij with respect to phi, for one client's row w_i.

    This is eqs. 31 and 62.
    """
    parameters = torch.from_numpy(encoder).requires_grad_()
    with torch.enable_grad():
        value = torch.from_numpy(weights) @ _log_attention(parameters, torch.from_numpy(sketches))
    [gradient] = torch.autograd.grad(value, parameters)
    return np.asarray(gradient.numpy())


@dataclass(frozen=True)
class Adam:
    """Ascent by Adam (Kingma and Ba 2014) with weight decay, one step at a time; state of one client."""

    learning_rate: float = 0.1
    weight_decay: float = 0.01
    steps: int = 0
    mean: Floats | float = 0.0
    square: Floats | float = 0.0

    def ascended(self, at: Floats, gradient: Floats) -> tuple[Floats, Adam]:
        """Return the parameters after a step up the gradient, and the state for the next one."""
        gradient = gradient - self.weight_decay * at
        steps = self.steps + 1
        mean = 0.9 * self.mean + 0.1 * gradient
        square = 0.999 * self.square + 0.001 * gradient**2
        step = (mean / (1 - 0.9**steps)) / (np.sqrt(square / (1 - 0.999**steps)) + 1e-8)
        moved = np.asarray(at + self.learning_rate * step)
        return moved, Adam(self.learning_rate, self.weight_decay, steps, mean, square)


def attention_lower_bound(
    log_likelihoods: Floats, weights: Floats, log_prior: Floats, temperature: float = 1.0
) -> float:
    """Return the lower bound of eq. 58 without the models' prior.

    All arrays are [..., n], with an entry for each candidate, including the client itself.
    """
    return float((weights * (log_likelihoods + log_prior)).sum() + temperature * exclusive_entropy(weights))
