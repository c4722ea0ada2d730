"""Metrics that are measured if a scenario states none. This module does not import torch."""

from collections.abc import Mapping

DEFAULT_METRICS: Mapping[str, tuple[str, ...]] = {
    "classification": ("accuracy", "loss"),
    "regression": ("loss",),
    "language": ("perplexity", "loss"),
    "quadratic": ("distance",),
}
"""Names of metrics, by the task of the data."""
