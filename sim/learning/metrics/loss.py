"""How probable a model takes the true classes to be, or how far it is from the true numbers."""

from torch import Tensor
from torch.nn import functional

from sim.learning.metrics.metric import SampleMetric


class CrossEntropy(SampleMetric):
    """Mean cross-entropy, in nats."""

    name = "loss"

    def values(self, scores: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(scores, y, reduction="none")


class SquaredError(SampleMetric):
    """Mean squared error, also over the targets of a sample."""

    name = "loss"

    def values(self, scores: Tensor, y: Tensor) -> Tensor:
        return (scores - y.transpose(1, 2)).square().mean(dim=1)
