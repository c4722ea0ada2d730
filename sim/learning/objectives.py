"""Objectives of clients: pure functions (model, parameters, inputs, labels) -> scalar mean loss.

All are vmappable over the parameters and the batch. `OBJECTIVES` maps the task of a data set to its
objective. Objectives that are a mean over samples have a method `each`, the loss of each sample.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional

from protocols.framework.objectives import (
    Model,
    ModelOutputs,
    OutputGradients,
    Parameters,
    cross_entropy_gradient,
)

Objective = Callable[[Model, Parameters, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class CrossEntropyLoss:
    """Cross-entropy, in nats, of the logits for inputs x [B, ...] against the classes y [B] (int64)."""

    embeds: ClassVar[bool] = False

    def __call__(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        # Under autocast the logits are bfloat16, too coarse for a logarithm; float() does nothing otherwise.
        return functional.cross_entropy(model.forward(parameters, x).float(), y)

    def each(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample, [B]."""
        return functional.cross_entropy(model.forward(parameters, x).float(), y, reduction="none")

    def output_losses(self, outputs: ModelOutputs, y: Tensor) -> Tensor:
        """Return the loss of each sample, see `ClosedForm`."""
        return -outputs.scores.log_softmax(dim=1).gather(1, y.unsqueeze(1))[:, 0]

    def output_gradients(self, outputs: ModelOutputs, y: Tensor) -> OutputGradients:
        """Return the gradients, see `ClosedForm`."""
        return OutputGradients(cross_entropy_gradient(outputs.scores, y))


@dataclass(frozen=True)
class NextTokenLoss:
    """Cross-entropy, in nats, of the logits [B, T, V] for tokens x [B, T] against next tokens y [B, T]."""

    def __call__(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        return self.each(model, parameters, x, y).mean()

    def each(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample, the mean over its tokens, [B]."""
        logits = model.forward(parameters, x).float().flatten(0, 1)
        return functional.cross_entropy(logits, y.flatten(), reduction="none").view(y.shape).mean(dim=1)


@dataclass(frozen=True)
class SquaredErrorLoss:
    """Squared error, the mean over T, of the outputs for x [B, ...] against targets y [B, T] (float32)."""

    embeds: ClassVar[bool] = False

    def __call__(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        return functional.mse_loss(model.forward(parameters, x).float(), y)

    def each(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample, [B]."""
        return functional.mse_loss(model.forward(parameters, x).float(), y, reduction="none").mean(dim=1)

    def output_losses(self, outputs: ModelOutputs, y: Tensor) -> Tensor:
        """Return the loss of each sample, see `ClosedForm`."""
        return (outputs.scores - y.mT).square_().mean(dim=1)

    def output_gradients(self, outputs: ModelOutputs, y: Tensor) -> OutputGradients:
        """Return the gradients, see `ClosedForm`."""
        return OutputGradients((outputs.scores - y.mT).mul_(2 / y.shape[2]))


@dataclass(frozen=True)
class QuadraticLoss:
    """a/2 ||p - t||^2 for the point p [d] over rows x [B, 1 + d] = (a, t); y is not used.

    The stochastic form of CoBo's Example 2, f_i(p) = a_i/2 ||p - mu_k||^2: the targets t scatter around mu_k.
    """

    def __call__(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        return self.each(model, parameters, x, y).mean()

    def each(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row, [B]."""
        curvature, target = x[:, 0], x[:, 1:]
        squared_distance = (model.forward(parameters, x) - target).square().sum(dim=1)
        return curvature / 2 * squared_distance


cross_entropy = CrossEntropyLoss()
next_token = NextTokenLoss()
squared_error = SquaredErrorLoss()
quadratic = QuadraticLoss()
OBJECTIVES: Mapping[str, Objective] = {
    "classification": cross_entropy,
    "regression": squared_error,
    "language": next_token,
    "quadratic": quadratic,
}


def objective_name(objective: Objective) -> str:
    """Return the name of an objective's function or class."""
    name: str = getattr(objective, "__name__", type(objective).__name__)
    return name


def loss_of_each(objective: Objective) -> Callable[..., Tensor]:
    """Return (model, parameters, x, y) -> the loss of each sample, [B]. Raises ValueError without `each`."""
    each: Any = getattr(objective, "each", None)
    if each is None:
        raise ValueError(
            f"{objective_name(objective)} has no method each(model, parameters, x, y), which weights of "
            'samples and the reduction "none" need: add it; it returns the loss of each sample, [B]'
        )
    return each


def closed_form(objective: Objective, method: str) -> Callable[..., Any] | None:
    """Return a method of `ClosedForm`, if the objective's class defines it itself, not only a base class."""
    own = vars(type(objective))
    return getattr(objective, method) if {method, "embeds", "output_gradients"} <= own.keys() else None


def mean_loss(
    objective: Objective,
    model: Model,
    parameters: Parameters,
    x: Tensor,
    y: Tensor,
    weights: Tensor | None = None,
) -> Tensor:
    """Return the mean over a batch of weight times loss, or of the loss if `weights` [B] is None."""
    if weights is None:
        return objective(model, parameters, x, y)
    return (loss_of_each(objective)(model, parameters, x, y) * weights).mean()
