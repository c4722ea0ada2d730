"""Topologies: a directed exponential graph, and a ring whose clients keep more of their own.

[clients]
topology = { kind = "topology.py:exponential", directed = true }
"""

import numpy as np


def exponential(clients):
    """Client i sends to those 1, 2, 4, 8, ... places behind it."""
    step = 1
    while step < clients:
        for client in range(clients):
            yield client, (client + step) % clients
        step *= 2


def lazy_ring(clients, own: float = 0.6):
    """The mixing matrix of a ring: row i has what client i gives to the models of the others."""
    ring = np.roll(np.eye(clients), 1, axis=0) + np.roll(np.eye(clients), -1, axis=0)
    return own * np.eye(clients) + (1 - own) / 2 * ring
