"""What clients minimise: pure functions (model, parameters, inputs, labels) -> scalar mean loss.

All are vmappable over the parameters and the batch. `OBJECTIVES` finds them by a data set's task.
"""

from collections.abc import Callable, Mapping

from torch import Tensor
from torch.nn import functional

from protocols.framework.objectives import Model, Parameters

Objective = Callable[[Model, Parameters, Tensor, Tensor], Tensor]


def cross_entropy(model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy, in nats, of the logits for inputs x [B, ...] against the classes y [B] (int64)."""
    # Under autocast the logits are bfloat16, too coarse for a logarithm; float() does nothing otherwise.
    return functional.cross_entropy(model.forward(parameters, x).float(), y)


def quadratic(model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
    """Mean of a/2 ||p - t||^2 for the point p [d] over rows x [B, 1 + d] = (a, t); y is not used.

    The stochastic form of CoBo's Example 2, f_i(p) = a_i/2 ||p - mu_k||^2: the targets t scatter around mu_k.
    """
    curvature, target = x[:, 0], x[:, 1:]
    squared_distance = (model.forward(parameters, x) - target).square().sum(dim=1)
    return (curvature / 2 * squared_distance).mean()


OBJECTIVES: Mapping[str, Objective] = {"classification": cross_entropy, "quadratic": quadratic}
