"""Write features.npz: digits of four simulated cameras, transformed by an untrained network layer."""

import numpy as np
from sklearn.datasets import load_digits

rng = np.random.default_rng(0)
digits = load_digits()
pixels, y = digits.data / 16, digits.target
client = np.array(["bright", "dark", "noisy", "plain"])[np.arange(len(y)) % 4]
pixels = (
    pixels * np.where(client == "dark", 0.3, 1.0)[:, None] + np.where(client == "bright", 0.5, 0.0)[:, None]
)
pixels += rng.normal(size=pixels.shape) * np.where(client == "noisy", 0.4, 0.0)[:, None]
x = np.maximum(pixels @ rng.normal(size=(64, 128)) / 8, 0).astype(np.float32)
np.savez("features.npz", x=x, y=y, client=client)
