"""What the observer measures of a model: on samples one by one, or of its parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from sim.learning.engine.samples import Subset


class Metric(ABC):
    """A metric called `name` in the results; its value is one number per client."""

    name: str


class SampleMetric(Metric):
    """The mean of something over a client's samples."""

    @abstractmethod
    def values(self, scores: Tensor, y: Tensor) -> Tensor:
        """One number per sample [N, B], of class scores [N, K, B] and true classes [N, B].

        In a regression of outputs [N, T, B] and targets [N, B, T].
        """


class ParameterMetric(Metric):
    """Something that shows in a client's parameters."""

    @abstractmethod
    def of_models(self, rows: Tensor, subset: Subset, clients: Sequence[int]) -> np.ndarray:
        """One number per client [N], of models `rows` [N, P]; `subset` holds the clients' samples."""
