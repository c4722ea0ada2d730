"""Topologies: a directed exponential graph, and a ring in which clients give more weight to their own models.

[clients]
topology = { kind = "topology.py:exponential", directed = true }
"""

import numpy as np


def exponential(clients):
    """Yield links from client i to clients i + 1, i + 2, i + 4, i + 8, ..."""
    step = 1
    while step < clients:
        for client in range(clients):
            yield client, (client + step) % clients
        step *= 2


def lazy_ring(clients, own: float = 0.6):
    """Return the mixing matrix of a ring; row i contains the weights that client i gives to all models."""
    ring = np.roll(np.eye(clients), 1, axis=0) + np.roll(np.eye(clients), -1, axis=0)
    return own * np.eye(clients) + (1 - own) / 2 * ring
