"""Stochastic block model as a prior of the cooperation graph (Li et al. 2023, section 4.2, appendix D).

Client i has a membership Omega_i [M], a distribution over M blocks, and an edge (i, j) exists a priori with
probability B(g, h) if i is in block g and j in h. All functions are about one client and its n peers, whose
memberships are the rows of `others` [n, M]: each client computes its own from the others' messages.

This module uses numpy in float64. A pair consists of two different clients: the paper's sums over i, j would
make the bound quadratic in Omega_i, and its closed form for Omega_i the maximum of another function.
"""

import numpy as np
from numpy.typing import NDArray

from protocols.scool.dirichlet import entropy, expected_log, expected_log_density
from protocols.scool.special import entr, softmax
from protocols.scool.weights import independent_entropy

Floats = NDArray[np.float64]

PROBABILITY_MIN = 1e-3
"""Least distance of probabilities in B from 0 and 1, so that early errors can be corrected."""


def first_probabilities(blocks: int, inside: float, across: float) -> Floats:
    """Return B [M, M] with one probability inside blocks and one across (the authors' code: .8 and .2)."""
    return np.where(np.eye(blocks, dtype=bool), inside, across).astype(np.float64)


def edge_log_odds(own: Floats, others: Floats, probabilities: Floats) -> Floats:
    """Return the prior's log odds of edges from the client to its peers [n]: the sums over g, h in eq. 18."""
    return np.asarray(others @ (np.log(probabilities) - np.log1p(-probabilities)).T @ own)


def concentration(own: Floats, alpha: Floats) -> Floats:
    """Return gamma_i [M], the concentration of the Dirichlet posterior of pi_i (eqs. 19, 46)."""
    return own + alpha


def block_membership(
    gamma: Floats, others: Floats, outgoing: Floats, incoming: Floats, probabilities: Floats
) -> Floats:
    """Return the membership Omega_i [M] (eqs. 20, 21, 48).

    outgoing [n]: w_ij; incoming [n]: w_ji, nan if unknown.
    """
    present, absent = np.log(probabilities), np.log1p(-probabilities)
    known = ~np.isnan(incoming)
    incoming, senders = incoming[known], others[known]
    log_masses = (
        present @ (outgoing @ others)
        + present.T @ (incoming @ senders)
        + absent @ ((1 - outgoing) @ others)
        + absent.T @ ((1 - incoming) @ senders)
    )
    return np.asarray(softmax(log_masses + expected_log(gamma)))


def edge_counts(own: Floats, others: Floats, outgoing: Floats) -> tuple[Floats, Floats]:
    """Return a client's terms of the two sums over clients [M, M] whose ratio is B (eqs. 24, 52)."""
    return np.outer(own, outgoing @ others), np.outer(own, others.sum(axis=0))


def edge_probabilities(present: Floats, possible: Floats) -> Floats:
    """Return B [M, M] from sums or means of all clients' `edge_counts`; 1/2 for blocks without pairs."""
    ratio = np.divide(present, possible, out=np.full_like(present, 0.5), where=possible > 1e-12)
    return np.clip(ratio, PROBABILITY_MIN, 1 - PROBABILITY_MIN)


def block_lower_bound(
    log_likelihoods: Floats,
    weights: Floats,
    memberships: Floats,
    concentrations: Floats,
    alpha: Floats,
    probabilities: Floats,
    temperature: float = 1.0,
) -> float:
    """Return the lower bound of eq. 41 without the prior of the models, which inference does not change.

    log_likelihoods [K, K]: log P(D_j | theta_i); weights [K, K], with an ignored diagonal; memberships and
    concentrations [K, M].
    """
    clients = len(weights)
    pairs = ~np.eye(clients, dtype=bool)
    present = memberships @ np.log(probabilities) @ memberships.T
    absent = memberships @ np.log1p(-probabilities) @ memberships.T
    edges = weights * (log_likelihoods + present) + (1 - weights) * absent
    logs = expected_log(concentrations)
    return float(
        np.trace(log_likelihoods)
        + edges[pairs].sum()
        + temperature * independent_entropy(weights[pairs])
        + (memberships * logs).sum()
        + entr(memberships).sum()
        + clients * expected_log_density(alpha, logs.mean(axis=0))
        + entropy(concentrations).sum()
    )
