"""Batch normalisation (Ioffe and Szegedy 2015) for models that are pure functions of their parameters."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from sim.errors import UserError
from sim.learning.models.modules.replacing import replaced


class BatchNorm(nn.Module):
    """torch.nn.BatchNorm1d and 2d with the running statistics among the parameters.

    So they are sent, mixed and kept with a model, and each client has its own under `vmap`. In training,
    inputs are normalised by the batch's mean and biased variance, and the running statistics move towards its
    mean and unbiased variance: they are assigned to the module's attributes, where `TrainingPass` finds them.
    Linear combinations of models may have a negative running variance; it counts as 0.
    """

    untrained = ("running_mean", "running_var")
    """Parameters that no optimizer touches."""

    running_mean: Tensor  # for the type checker: of nn.Parameters it would not let us set the new ones
    running_var: Tensor

    def __init__(self, features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.features, self.eps, self.momentum = features, eps, momentum
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_parameter("running_mean", nn.Parameter(torch.zeros(features)))
        self.register_parameter("running_var", nn.Parameter(torch.ones(features)))

    def extra_repr(self) -> str:
        return f"{self.features}, eps={self.eps}, momentum={self.momentum}"

    def reset(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Start as the identity: weight and variance 1, bias and mean 0."""
        for name, values in parameters.items():
            values.fill_(1.0 if name in ("weight", "running_var") else 0.0)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C] or [B, C, H, W] -> the same shape. UserError for a training batch of 1 value per channel."""
        if not self.training:
            mean, variance = self.running_mean.detach(), self.running_var.detach().clamp(min=0)
            return functional.batch_norm(x, mean, variance, self.weight, self.bias, eps=self.eps)
        if x.numel() == x.shape[1]:
            raise UserError(
                "batch normalisation has nothing to compare a single sample with: training.batch_size, and "
                "every client's number of training samples, must be 2 or more"
            )
        with torch.no_grad():
            dims = [0, *range(2, x.dim())]
            variance, mean = torch.var_mean(x.detach().float(), dim=dims)
            self._parameters["running_mean"] = self._moved(self.running_mean, mean)
            self._parameters["running_var"] = self._moved(self.running_var, variance)
        return functional.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)

    def _moved(self, old: Tensor, batch: Tensor) -> nn.Parameter:
        return (1 - self.momentum) * old.detach() + self.momentum * batch  # type: ignore[return-value]


def replace_batch_norms(module: nn.Module) -> nn.Module:
    """Replace torch's 1d and 2d batch norms inside `module`, in place, by ours with the same values.

    Returns the module, or its replacement if it is a batch norm itself. ValueError for norms without weights,
    without running statistics, or with a cumulative average (momentum None).
    """
    return replaced(module, (nn.BatchNorm1d, nn.BatchNorm2d), _ours)


def _ours(theirs: nn.BatchNorm1d | nn.BatchNorm2d) -> BatchNorm:
    if not theirs.affine or theirs.running_mean is None or theirs.momentum is None:
        raise ValueError(f"{theirs}: needs weights, running statistics and a momentum")
    assert theirs.running_var is not None
    ours = BatchNorm(theirs.num_features, theirs.eps, theirs.momentum)
    ours.weight, ours.bias = theirs.weight, theirs.bias
    ours._parameters["running_mean"] = nn.Parameter(theirs.running_mean)
    ours._parameters["running_var"] = nn.Parameter(theirs.running_var)
    ours.train(theirs.training)
    return ours
