"""Dirichlet distributions: priors and posteriors of memberships in the block models.

All functions use numpy in float64. M is the number of blocks.
"""

import numpy as np
from numpy.typing import NDArray

from protocols.scool.special import digamma, gammaln

Floats = NDArray[np.float64]

CONCENTRATION_MIN, CONCENTRATION_MAX = 1e-3, 1e3
"""Bounds of alpha: one membership per client has little information on alpha, so the likelihood of alpha may
have no maximum."""
_HALVINGS_MAX = 30


def expected_log(concentration: Floats) -> Floats:
    """Return E[log pi] [..., M] under Dirichlet(concentration [..., M]): psi(gamma_g) - psi(sum gamma)."""
    return digamma(concentration) - digamma(concentration.sum(axis=-1, keepdims=True))


def log_normaliser(concentration: Floats) -> Floats:
    """Return the log normalizer, [...], of the density of Dirichlet(a [..., M]).

    It is log Gamma(sum_g a_g) - sum_g log Gamma(a_g).
    """
    return gammaln(concentration.sum(axis=-1)) - gammaln(concentration).sum(axis=-1)


def entropy(concentration: Floats) -> Floats:
    """Return -E[log q(pi)] [...] of q = Dirichlet(concentration [..., M])."""
    return -log_normaliser(concentration) - ((concentration - 1) * expected_log(concentration)).sum(axis=-1)


def expected_log_density(alpha: Floats, mean_log: Floats) -> float:
    """Return the scalar E[log p(pi | alpha)], given mean_log [M], the expectation of log pi."""
    return float(log_normaliser(alpha) + ((alpha - 1) * mean_log).sum())


def concentration_gradient(alpha: Floats, mean_log: Floats) -> Floats:
    """Return the gradient [M] of `expected_log_density` with respect to alpha [M].

    Its entries are mean_log_g - psi(alpha_g) + psi(sum_h alpha_h). The paper's eqs. 23, 50 and 79 have sum_g
    psi(alpha_g) instead of psi(alpha_g), so they are not the bound's derivative. This function returns the
    derivative for the mean over clients instead of the sum.
    """
    return mean_log - digamma(alpha) + digamma(alpha.sum())


def ascend_concentration(alpha: Floats, mean_log: Floats, step_size: float) -> Floats:
    """Return alpha [M] after one gradient ascent step on the bound.

    The step size is halved until the bound does not fall; after 30 halvings, alpha is returned unchanged.
    mean_log [M]: E[log pi], averaged over all clients. The result is within the bounds of this module.
    """
    gradient, before = concentration_gradient(alpha, mean_log), expected_log_density(alpha, mean_log)
    for _ in range(_HALVINGS_MAX):
        moved = np.clip(alpha + step_size * gradient, CONCENTRATION_MIN, CONCENTRATION_MAX)
        if expected_log_density(moved, mean_log) >= before:
            return moved
        step_size /= 2
    return alpha
