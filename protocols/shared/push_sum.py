"""Averages over all clients without a server: push-sum (Kempe et al. 2003), for numbers that change.

Each client holds a mass, which is numbers and a weight. It now and then keeps half of it and sends the other
half to somebody; the numbers over the weight tend to the average of what all clients brought in.

A client's numbers change, messages are lost, clients come and go for ever. So each time a client brings in
its present numbers, `share` of its mass is replaced by them (with weight 1): what was brought in long ago, by
a client that is gone, say, fades, and what was lost is made up for. The price is that a client's own numbers
count more in its own average, and those of clients more that bring theirs in more often. With a share of 0
and fixed numbers it is push-sum itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mass:
    """Numbers [n] with a weight, more than 0."""

    numbers: Floats
    weight: float

    @property
    def average(self) -> Floats:
        """The estimate [n] of the average over all clients."""
        return self.numbers / self.weight

    @property
    def half(self) -> Mass:
        """Half of it: as much is kept as is sent."""
        return Mass(self.numbers / 2, self.weight / 2)

    def with_(self, other: Mass) -> Mass:
        """The sum of both."""
        return Mass(self.numbers + other.numbers, self.weight + other.weight)

    def renewed(self, numbers: Floats, share: float) -> Mass:
        """`share` of it replaced by present numbers [n] of weight 1."""
        return Mass((1 - share) * self.numbers + share * numbers, (1 - share) * self.weight + share)
