"""Posterior weights of the cooperation graph, given the evidence for each edge.

This module uses numpy in float64. A temperature divides the evidence for an edge (Li et al. 2023, appendix
C.1). The result is the exact E-step of a bound in which the entropy of the graph counts `temperature` times.
"""

import numpy as np
from numpy.typing import NDArray

from protocols.scool.special import entr, expit, softmax

Floats = NDArray[np.float64]


def independent_weights(log_odds: Floats, temperature: float) -> Floats:
    """Return w [...] of edges that are drawn independently: the sigmoid of eqs. 18 and 72."""
    return expit(log_odds / temperature)


def exclusive_weights(log_masses: Floats, temperature: float) -> Floats:
    """Return w [..., n], with sum 1 in each row: the softmax of eq. 29."""
    return softmax(log_masses / temperature)


def independent_entropy(weights: Floats) -> float:
    """Return the entropy of edges drawn independently, with probabilities w of any shape."""
    return float((entr(weights) + entr(1.0 - weights)).sum())


def exclusive_entropy(weights: Floats) -> float:
    """Return the entropy of rows w [..., n] that each draw one edge."""
    return float(entr(weights).sum())
