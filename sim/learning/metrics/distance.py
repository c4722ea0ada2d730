"""Distance of quadratic clients to their optimum."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from sim.learning.engine.graph.samples import Subset
from sim.learning.metrics.metric import ParameterMetric


class DistanceToOptimum(ParameterMetric):
    """||x - mu|| of quadratic clients, whose single test row is (a, mu)."""

    name = "distance"

    def of_models(self, rows: Tensor, subset: Subset, clients: Sequence[int]) -> np.ndarray:
        numbers = np.asarray(clients, dtype=np.int64)
        x, _ = subset.gather(numbers, np.zeros((len(numbers), 1), dtype=np.int64))
        return (rows - x[:, 0, 1:]).norm(dim=1).double().cpu().numpy()
