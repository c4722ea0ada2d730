"""Your own data with clients: two moons, rotated by a different angle for each client."""

import numpy as np
from sklearn.datasets import make_moons


def moons(rng, clients, samples: int = 100, noise: float = 0.2, turn: float = 0.4):
    """Return `samples` per client; client i's samples are rotated by i times `turn`, in radians."""
    x, y = make_moons(clients * samples, noise=noise, random_state=int(rng.integers(2**31)))
    client = np.arange(clients * samples) % clients
    cos, sin = np.cos(turn * client), np.sin(turn * client)
    turned = np.stack([cos * x[:, 0] - sin * x[:, 1], sin * x[:, 0] + cos * x[:, 1]], axis=1)
    return turned, y, client
