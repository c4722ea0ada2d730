"""Batch normalization (Ioffe and Szegedy 2015) for models that are pure functions of their parameters."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from sim.errors import UserError


class BatchNorm(_BatchNorm):
    """torch.nn.BatchNorm1d, 2d and 3d with the running statistics among the parameters.

    The statistics are therefore sent, mixed and stored with a model, and each client has separate ones under
    `vmap`. In training, inputs are normalized by the batch's mean and biased variance, and the running
    statistics move towards the batch's mean and unbiased variance. The new statistics are assigned to the
    module's attributes, from which `TrainingPass` reads them. Linear combinations of models can have a
    negative running variance, which counts as 0.

    For `isinstance`, `BatchNorm1d`, `BatchNorm2d` and `BatchNorm3d` below are torch's classes of these names.
    """

    untrained = ("running_mean", "running_var")
    """Parameters that no optimizer changes."""

    weight: nn.Parameter | None  # type: ignore[assignment]
    bias: nn.Parameter | None  # type: ignore[assignment]
    running_mean: Tensor  # for the type checker, which rejects tensors in nn.Parameter
    running_var: Tensor
    momentum: float

    def __init__(self, features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(features, eps, momentum)
        self.keep_statistics_as_parameters()

    def keep_statistics_as_parameters(self) -> None:
        """Turn the statistics into parameters; drop the number of batches, needed only without momentum."""
        del self.num_batches_tracked
        for name in self.untrained:
            statistics = self._buffers.pop(name)
            assert statistics is not None
            self.register_parameter(name, nn.Parameter(statistics))

    def reset(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Start as the identity: weight and variance 1, bias and mean 0."""
        for name, values in parameters.items():
            values.fill_(1.0 if name in ("weight", "running_var") else 0.0)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize [B, C, ...]. Raises UserError for a training batch of 1 value per channel."""
        self._check_input_dim(x)
        if not self.training:
            mean, variance = self.running_mean.detach(), self.running_var.detach().clamp(min=0)
            return functional.batch_norm(x, mean, variance, self.weight, self.bias, eps=self.eps)
        require_several(x.numel() // x.shape[1])
        if self.track_running_stats:  # a model may disable it temporarily
            self._move_statistics(x.detach())
        return functional.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept values of any shape; the subclasses below accept the shapes of torch's classes."""

    @torch.no_grad()
    def _move_statistics(self, x: Tensor) -> None:
        variance, mean = torch.var_mean(x.float(), dim=[0, *range(2, x.dim())])
        self._parameters["running_mean"] = self._moved(self.running_mean, mean)
        self._parameters["running_var"] = self._moved(self.running_var, variance)

    def _moved(self, old: Tensor, batch: Tensor) -> nn.Parameter:
        return (1 - self.momentum) * old.detach() + self.momentum * batch  # type: ignore[return-value]


class BatchNorm1d(BatchNorm, nn.BatchNorm1d):
    """Replacement of torch.nn.BatchNorm1d in a model."""

    _check_input_dim = nn.BatchNorm1d._check_input_dim


class BatchNorm2d(BatchNorm, nn.BatchNorm2d):
    """Replacement of torch.nn.BatchNorm2d in a model."""

    _check_input_dim = nn.BatchNorm2d._check_input_dim


class BatchNorm3d(BatchNorm, nn.BatchNorm3d):
    """Replacement of torch.nn.BatchNorm3d in a model."""

    _check_input_dim = nn.BatchNorm3d._check_input_dim


_OURS: Mapping[type[nn.Module], type[BatchNorm]] = {
    nn.BatchNorm1d: BatchNorm1d,
    nn.BatchNorm2d: BatchNorm2d,
    nn.BatchNorm3d: BatchNorm3d,
}


def require_several(values: int) -> None:
    """Raise UserError for a training batch of 1 value per channel."""
    if values == 1:
        raise UserError(
            "batch normalization needs several samples: training.batch_size, and every client's number of "
            "training samples, must be 2 or more"
        )


def replace_batch_norms(module: nn.Module) -> nn.Module:
    """Replace torch's batch norms inside `module` by `BatchNorm`, in place; returns the module.

    A norm stays the same object, with its values and its hooks. Norms without running statistics stay
    torch's: they have no state. Raises ValueError for norms that compute running statistics in a different
    way: averages over all batches (momentum None), and subclasses of torch's classes.
    """
    for path, norm in module.named_modules():
        if not isinstance(norm, _NormBase) or norm.running_mean is None or isinstance(norm, BatchNorm):
            continue
        kind = type(norm).__name__
        if type(norm) not in _OURS:
            raise ValueError(
                f"{path or 'the model'} is of type {kind} and has running statistics. Clients have separate "
                "statistics only for torch.nn.BatchNorm1d, 2d and 3d: use one of these and a second module "
                "for the remaining code of the class, or set track_running_stats=False"
            )
        if norm.momentum is None:
            raise ValueError(
                f"{path or 'the model'} is a {kind} with momentum=None, an average over all batches: set a "
                "momentum, such as momentum=0.1"
            )
        norm.__class__ = _OURS[type(norm)]
        norm.keep_statistics_as_parameters()  # type: ignore[operator]
    return module


def restore_batch_norms(module: nn.Module) -> None:
    """Turn each `BatchNorm` inside `module` into torch's class again, in place.

    A negative running variance becomes 0, the value that it has in evaluations. The number of batches becomes
    0.
    """
    torchs = {ours: theirs for theirs, ours in _OURS.items()}
    for norm in module.modules():
        if isinstance(norm, BatchNorm):
            norm.__class__ = torchs[type(norm)]  # type: ignore[assignment]  # a superclass
            for name in BatchNorm.untrained:
                values = norm._parameters.pop(name)
                assert values is not None
                norm.register_buffer(
                    name, values.detach().clamp(min=0) if name == "running_var" else values.detach()
                )
            norm.register_buffer("num_batches_tracked", torch.tensor(0))
