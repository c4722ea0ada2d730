"""Metrics that are measured if a scenario states none. The description of `run.metrics` reads them without
torch.
"""

from collections.abc import Mapping

DEFAULT_METRICS: Mapping[str, tuple[str, ...]] = {
    "classification": ("accuracy", "loss"),
    "regression": ("loss",),
    "language": ("perplexity", "loss"),
    "quadratic": ("distance",),
}
"""Names of metrics, by the task of the data."""
