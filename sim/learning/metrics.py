"""The metrics that the observer evaluates: to add one, add it to `METRICS`.

A metric is called `name` in the results. Its value is one number for each client.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor
from torch.nn import functional

from sim.learning.engine.graph.samples import Subset


@dataclass(frozen=True)
class SampleMetric:
    """A metric that is a mean over a client's samples.

    values: one number per sample [N, B], of class scores [N, K, B] and true classes [N, B]; in a regression,
    of outputs [N, T, B] and targets [N, B, T].
    """

    name: str
    values: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ParameterMetric:
    """A metric that is a function of a client's parameters.

    of_models: one number per client [N], of models [N, P], and of N clients and the subset of their samples.
    """

    name: str
    of_models: Callable[[Tensor, Subset, Sequence[int]], np.ndarray]


def accuracy(scores: Tensor, y: Tensor) -> Tensor:
    """Whether a sample's class has the highest score."""
    return scores.max(dim=1).indices == y  # argmax takes five times as long on a CPU


def cross_entropy(scores: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy, in nats."""
    return functional.cross_entropy(scores, y, reduction="none")


def squared_error(scores: Tensor, y: Tensor) -> Tensor:
    """Squared error, averaged over the targets of a sample."""
    return (scores - y.transpose(1, 2)).square().mean(dim=1)


def distance_to_optimum(rows: Tensor, subset: Subset, clients: Sequence[int]) -> np.ndarray:
    """||x - mu|| of quadratic clients, whose single test row is (a, mu)."""
    numbers = np.asarray(clients, dtype=np.int64)
    x, _ = subset.gather(numbers, np.zeros((len(numbers), 1), dtype=np.int64))
    return (rows - x[:, 0, 1:]).norm(dim=1).double().cpu().numpy()


METRICS: Mapping[str, tuple[SampleMetric | ParameterMetric, ...]] = {
    "classification": (SampleMetric("accuracy", accuracy), SampleMetric("loss", cross_entropy)),
    "regression": (SampleMetric("loss", squared_error),),
    "quadratic": (ParameterMetric("distance", distance_to_optimum),),
}
"""Task of the data -> its metrics. Models are judged by the first one."""

NAMES = frozenset(metric.name for metrics in METRICS.values() for metric in metrics)
