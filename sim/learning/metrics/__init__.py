"""The metrics that the observer evaluates, a class each.

To add one: a file with its class, and an object of it in `METRICS`.
"""

from collections.abc import Mapping

from sim.learning.metrics.accuracy import Accuracy
from sim.learning.metrics.distance import DistanceToOptimum
from sim.learning.metrics.loss import CrossEntropy, SquaredError
from sim.learning.metrics.metric import Metric, ParameterMetric, SampleMetric

METRICS: Mapping[str, tuple[Metric, ...]] = {
    "classification": (Accuracy(), CrossEntropy()),
    "regression": (SquaredError(),),
    "quadratic": (DistanceToOptimum(),),
}
"""Task of the data -> its metrics. Models are judged by the first one."""

NAMES = frozenset(metric.name for metrics in METRICS.values() for metric in metrics)

__all__ = ["METRICS", "NAMES", "Metric", "ParameterMetric", "SampleMetric"]
