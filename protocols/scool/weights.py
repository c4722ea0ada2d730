"""The posterior weights of the cooperation graph, given what speaks for each edge.

Pure numpy in float64. A temperature divides all that speaks for an edge (Li et al. 2023, appendix C.1). That
is the exact E-step of a bound in which the entropy of the graph counts `temperature` times.
"""

import numpy as np
from numpy.typing import NDArray

from protocols.scool.special import entr, expit, softmax

Floats = NDArray[np.float64]


def independent_weights(log_odds: Floats, temperature: float) -> Floats:
    """w [...] of edges that are drawn one by one: the sigmoid of eqs. 18 and 72."""
    return expit(log_odds / temperature)


def exclusive_weights(log_masses: Floats, temperature: float) -> Floats:
    """w [..., n], of which a row adds up to 1: the softmax of eq. 29."""
    return softmax(log_masses / temperature)


def independent_entropy(weights: Floats) -> float:
    """Entropy of edges drawn one by one, with probabilities w of any shape."""
    return float((entr(weights) + entr(1.0 - weights)).sum())


def exclusive_entropy(weights: Floats) -> float:
    """Entropy of rows w [..., n] that each draw one edge."""
    return float(entr(weights).sum())
