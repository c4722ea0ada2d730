"""Mixed membership stochastic block model as a prior of the graph (Li et al. 2023, appendix F).

Here a client may act as a member of a different block toward each peer: for the pair (i, j) client i draws a
block from its pi_i, and client j one from its pi_j. Client i keeps the state of the pairs (i, j) that it
starts: both indicators' posteriors phi_{i->j} and phi_{i<-j} (`sending` and `receiving` [n, M] here) and
w_ij. Its peers send it the expected log of their pi_j, and their phi_{j<-i}, which gamma_i needs.

This module uses numpy in float64. A pair consists of two different clients.
"""

import numpy as np
from numpy.typing import NDArray

from protocols.scool.dirichlet import entropy, expected_log, expected_log_density
from protocols.scool.special import entr, softmax
from protocols.scool.weights import independent_entropy

Floats = NDArray[np.float64]


def edge_log_odds(sending: Floats, receiving: Floats, probabilities: Floats) -> Floats:
    """Return the prior's log odds of the edges (i, j), [n]: the sums over g, h in eq. 71."""
    log_odds = np.log(probabilities) - np.log1p(-probabilities)
    return np.asarray(((sending @ log_odds) * receiving).sum(axis=1))


def concentration(alpha: Floats, sending: Floats, received: Floats) -> Floats:
    """Return gamma_i [M], the concentration of the posterior of pi_i (eq. 74).

    received [n, M]: phi_{j<-i}, of the pairs that the peers started.
    """
    return np.asarray(alpha + sending.sum(axis=0) + received.sum(axis=0))


def sending_blocks(gamma: Floats, receiving: Floats, weights: Floats, probabilities: Floats) -> Floats:
    """Return phi_{i->j} [n, M], the posterior of the client's block for each peer (eq. 76)."""
    present, absent = np.log(probabilities), np.log1p(-probabilities)
    edges = weights[:, None] * (receiving @ present.T) + (1 - weights[:, None]) * (receiving @ absent.T)
    return np.asarray(softmax(edges + expected_log(gamma)))


def receiving_blocks(peer_logs: Floats, sending: Floats, weights: Floats, probabilities: Floats) -> Floats:
    """Return phi_{i<-j} [n, M], the posterior of each peer's block for the client (eq. 77).

    peer_logs [n, M]: the expected log of each peer's pi_j.
    """
    present, absent = np.log(probabilities), np.log1p(-probabilities)
    edges = weights[:, None] * (sending @ present) + (1 - weights[:, None]) * (sending @ absent)
    return np.asarray(softmax(edges + peer_logs))


def edge_counts(sending: Floats, receiving: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return a client's terms of the two sums over clients [M, M] whose ratio is B (eq. 81)."""
    return (weights[:, None] * sending).T @ receiving, sending.T @ receiving


def mixed_lower_bound(
    log_likelihoods: Floats,
    weights: Floats,
    sending: Floats,
    receiving: Floats,
    concentrations: Floats,
    alpha: Floats,
    probabilities: Floats,
    temperature: float = 1.0,
) -> float:
    """Return the lower bound of appendix F.0.2 without the prior of the models.

    log_likelihoods and weights [K, K]; sending and receiving [K, K, M], phi_{i->j} and phi_{i<-j} at [i, j];
    concentrations [K, M]. Diagonals do not count.
    """
    clients = len(weights)
    pairs = ~np.eye(clients, dtype=bool)
    logs = expected_log(concentrations)
    present = np.einsum("ijg,gh,ijh->ij", sending, np.log(probabilities), receiving)
    absent = np.einsum("ijg,gh,ijh->ij", sending, np.log1p(-probabilities), receiving)
    edges = weights * (log_likelihoods + present) + (1 - weights) * absent
    drawn = (sending * logs[:, None]).sum(axis=2) + (receiving * logs[None]).sum(axis=2)
    drawn += (entr(sending) + entr(receiving)).sum(axis=2)
    return float(
        np.trace(log_likelihoods)
        + (edges + drawn)[pairs].sum()
        + temperature * independent_entropy(weights[pairs])
        + clients * expected_log_density(alpha, logs.mean(axis=0))
        + entropy(concentrations).sum()
    )
