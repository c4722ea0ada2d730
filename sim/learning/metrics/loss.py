"""How probable a model takes the true classes to be."""

from torch import Tensor
from torch.nn import functional

from sim.learning.metrics.metric import SampleMetric


class CrossEntropy(SampleMetric):
    """Mean cross-entropy, in nats."""

    name = "loss"

    def values(self, scores: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(scores, y, reduction="none")
