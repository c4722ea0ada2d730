"""The base classes of metrics: of samples, or of parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from sim.learning.engine.graph.samples import Subset


class Metric(ABC):
    """A metric, called `name` in the results. Its value is one number for each client."""

    name: str


class SampleMetric(Metric):
    """A metric that is a mean over a client's samples."""

    @abstractmethod
    def values(self, scores: Tensor, y: Tensor) -> Tensor:
        """One number per sample [N, B], of class scores [N, K, B] and true classes [N, B].

        In a regression of outputs [N, T, B] and targets [N, B, T].
        """


class ParameterMetric(Metric):
    """A metric that is a function of a client's parameters."""

    @abstractmethod
    def of_models(self, rows: Tensor, subset: Subset, clients: Sequence[int]) -> np.ndarray:
        """One number per client [N], of models `rows` [N, P]; `subset` holds the clients' samples."""
