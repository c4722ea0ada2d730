"""Averages over all clients without a server: push-sum (Kempe et al. 2003), for numbers that change.

Each client holds a mass, which consists of numbers and a weight. From time to time it keeps half of it and
sends the other half to another client; the numbers divided by the weight tend to the average over all
clients.

A client's numbers change, messages are lost, clients come and go. Therefore each time a client contributes
its present numbers, they replace `share` of its mass (with weight 1): old contributions, for example of a
client that has left, fade, and losses are compensated. The price is that a client's own numbers count more in
its own average, and clients that contribute more often count more. With a share of 0 and fixed numbers it is
plain push-sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PushSumMass:
    """Numbers [n] with a weight, more than 0."""

    numbers: Floats
    weight: float

    @property
    def average(self) -> Floats:
        """Estimate [n] of the average over all clients."""
        return self.numbers / self.weight

    @property
    def half(self) -> PushSumMass:
        """Half of the mass: one half is kept, the other is sent."""
        return PushSumMass(self.numbers / 2, self.weight / 2)

    def with_(self, other: PushSumMass) -> PushSumMass:
        """Return the sum of this mass and another."""
        return PushSumMass(self.numbers + other.numbers, self.weight + other.weight)

    def renewed(self, numbers: Floats, share: float) -> PushSumMass:
        """Return the mass with `share` of it replaced by present numbers [n] of weight 1."""
        return PushSumMass((1 - share) * self.numbers + share * numbers, (1 - share) * self.weight + share)
