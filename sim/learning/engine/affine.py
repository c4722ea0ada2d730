"""Training jobs as affine maps of the vectors that they start from and are pulled to."""

from collections.abc import Sequence
from typing import NamedTuple

from sim.learning.engine.optimizers import Optimizer


class AffineMap(NamedTuple):
    """Coefficients of a vector that a job returns.

    The vector is `start` times the initial parameters, plus `state` times the initial optimizer state, plus
    `anchors[k]` times anchor k, plus the job's own part: a weighted sum of the negated gradients of its loss.
    """

    start: float
    state: float
    anchors: tuple[float, ...]


def affine_map(
    optimizer: Optimizer,
    rates: Sequence[float],
    steps_done: int,
    strengths: Sequence[float],
) -> tuple[AffineMap, AffineMap] | None:
    """Return the maps of a job's parameters, and of its optimizer state.

    rates: learning rate of each step. strengths: c_k of the pulls sum_k c_k/2 ||x - a_k||^2. Without weight
    decay and momentum, start + sum(anchors) is 1. Returns None if the result is not affine in these vectors:
    for optimizers other than SGD, and for pulls whose gradient is clipped.
    """
    if not optimizer.rule.is_linear or (optimizer.clip_norm is not None and strengths):
        return None
    pull, decay, momentum = sum(strengths), optimizer.weight_decay, optimizer.momentum
    # Coefficients of (initial parameters, initial state, sum_k c_k a_k) in the parameters and in the state.
    params, state = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
    constant = [0.0, 0.0, 1.0]
    for step, rate in enumerate(rates):
        gradient = [(pull + decay) * own - anchor for own, anchor in zip(params, constant, strict=True)]
        if optimizer.slots:
            if optimizer.dampening and steps_done + step > 0:
                gradient = [(1 - optimizer.dampening) * each for each in gradient]
            state = [momentum * old + new for old, new in zip(state, gradient, strict=True)]
            if optimizer.nesterov:
                gradient = [new + momentum * old for new, old in zip(gradient, state, strict=True)]
            else:
                gradient = state
        params = [old - rate * new for old, new in zip(params, gradient, strict=True)]
    return tuple(  # type: ignore[return-value]
        [AffineMap(x, v, tuple([a * strength for strength in strengths])) for x, v, a in (params, state)]
    )
