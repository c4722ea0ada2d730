"""Losses on test samples: cross-entropy of classifiers, squared error of regressions."""

from torch import Tensor
from torch.nn import functional

from sim.learning.metrics.metric import SampleMetric


class CrossEntropy(SampleMetric):
    """Mean cross-entropy, in nats."""

    name = "loss"

    def values(self, scores: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(scores, y, reduction="none")


class SquaredError(SampleMetric):
    """Mean squared error, averaged over the targets of a sample as well."""

    name = "loss"

    def values(self, scores: Tensor, y: Tensor) -> Tensor:
        return (scores - y.transpose(1, 2)).square().mean(dim=1)
