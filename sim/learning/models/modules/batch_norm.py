"""Batch normalisation (Ioffe and Szegedy 2015) for models that are pure functions of their parameters."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _NormBase

from sim.errors import UserError


class BatchNorm(nn.Module):
    """torch.nn.BatchNorm1d, 2d and 3d with the running statistics among the parameters.

    So they are sent, mixed and kept with a model, and each client has its own under `vmap`. In training,
    inputs are normalised by the batch's mean and biased variance, and the running statistics move towards its
    mean and unbiased variance: they are assigned to the module's attributes, where `TrainingPass` finds them.
    Linear combinations of models may have a negative running variance; it counts as 0.
    """

    untrained = ("running_mean", "running_var")
    """Parameters that no optimizer touches."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: Tensor  # for the type checker: of nn.Parameters it would not let us set the new ones
    running_var: Tensor

    def __init__(self, features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = features, eps, momentum
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_parameter("running_mean", nn.Parameter(torch.zeros(features)))
        self.register_parameter("running_var", nn.Parameter(torch.ones(features)))

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"

    def reset(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Start as the identity: weight and variance 1, bias and mean 0."""
        for name, values in parameters.items():
            values.fill_(1.0 if name in ("weight", "running_var") else 0.0)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, ...] -> the same shape. UserError for a training batch of 1 value per channel."""
        if not self.training:
            mean, variance = self.running_mean.detach(), self.running_var.detach().clamp(min=0)
            return functional.batch_norm(x, mean, variance, self.weight, self.bias, eps=self.eps)
        require_several(x.numel() // x.shape[1])
        with torch.no_grad():
            dims = [0, *range(2, x.dim())]
            variance, mean = torch.var_mean(x.detach().float(), dim=dims)
            self._parameters["running_mean"] = self._moved(self.running_mean, mean)
            self._parameters["running_var"] = self._moved(self.running_var, variance)
        return functional.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)

    def _moved(self, old: Tensor, batch: Tensor) -> nn.Parameter:
        return (1 - self.momentum) * old.detach() + self.momentum * batch  # type: ignore[return-value]


def require_several(values: int) -> None:
    """UserError for a training batch of 1 value per channel."""
    if values == 1:
        raise UserError(
            "batch normalisation has nothing to compare a single sample with: training.batch_size, and every "
            "client's number of training samples, must be 2 or more"
        )


def replace_batch_norms(module: nn.Module) -> nn.Module:
    """Make torch's batch norms inside `module` ours, in place and with the same values; returns the module.

    A norm stays the object that it was, with its hooks and wherever it is used. Norms without running
    statistics stay torch's: they have no state. ValueError for norms whose running statistics are computed in
    another way: averages over all batches (momentum None), and classes derived from torch's.
    """
    for path, norm in module.named_modules():
        if not isinstance(norm, _NormBase) or norm.running_mean is None:
            continue
        if type(norm) not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            raise ValueError(
                f"{path or 'the model'} is a {type(norm).__name__} with running statistics. Each client has "
                "its own of torch.nn.BatchNorm1d, 2d and 3d, but not of classes derived from them: put what "
                "it adds behind the norm, or set track_running_stats=False"
            )
        if norm.momentum is None:
            raise ValueError(f"{norm}: its running statistics need a momentum")
        norm.__class__ = BatchNorm  # type: ignore[assignment]
        del norm.num_batches_tracked
        for name in BatchNorm.untrained:
            statistics = norm._buffers.pop(name)
            assert statistics is not None
            norm.register_parameter(name, nn.Parameter(statistics))
    return module
