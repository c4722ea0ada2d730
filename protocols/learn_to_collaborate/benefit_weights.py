"""Weights d of the clients' losses: a step down the validation loss, and the choice of collaborators.

"Learning to collaborate", section 4.2, eqs. 27 and 28, and appendix B.2.
"""

import numpy as np
from numpy.typing import ArrayLike

from protocols.framework.mathematics import project_on_simplex
from protocols.shared.hypernetwork import Floats


def projected_step(d: ArrayLike, gradient: ArrayLike, rate: float, floor: float, how: str) -> Floats:
    """Return d [n] after one step down the gradient, with entries of at least `floor` and sum 1.

    how = "clip": clipped to [floor, 1] and divided by the sum (eqs. 27 and 28), after which an entry may be a
    little below the floor. how = "simplex": the nearest point with entries of at least `floor`, the Euclidean
    projection. After a gradient that is not a number, all entries are equal; with "simplex", also after an
    infinite one. Raises ValueError for another value, and for a floor too high for this number of entries.
    """
    stepped = np.asarray(d, np.float64) - rate * np.asarray(gradient, np.float64)
    count = stepped.size
    if not 0 <= floor * count < 1:
        raise ValueError(f"floor = {floor}: must be 0 or more, and less than 1 / {count} for {count} weights")
    if how == "clip":
        clipped = np.clip(stepped, floor, 1.0)
        if not clipped.sum() > 0:
            return np.full(count, 1.0 / count)
        return clipped / clipped.sum()
    if how == "simplex":
        if not np.isfinite(stepped).all():
            return np.full(count, 1.0 / count)
        return floor + project_on_simplex(stepped - floor, 1.0 - count * floor)
    raise ValueError(f'unknown projection "{how}"; known: clip, simplex')


def optimal_collaborators(d: ArrayLike, target: int, rule: str, least: float) -> list[int]:
    """Return the numbers of a target's optimal collaborators, itself included, from its best weights d [n].

    rule = "threshold": weights of more than `least` times the equal share 1/n (appendix B.2). rule =
    "relative": weights of at least `least` times the target's own weight. Raises ValueError for another rule.
    """
    weights = np.asarray(d, np.float64)
    if rule == "threshold":
        chosen = weights > least / weights.size
    elif rule == "relative":
        chosen = weights >= least * weights[target]
    else:
        raise ValueError(f'unknown rule "{rule}"; known: threshold, relative')
    chosen[target] = True
    return np.flatnonzero(chosen).tolist()
