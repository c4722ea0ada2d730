"""How many gradients for others a client computes: a slow one keeps its device for itself."""

from __future__ import annotations

import math

LOSS_SHARE = 1 / 3
"""Of a gradient, that a loss costs on as many samples."""
BURST = 2.0
"""What a client can save up at least."""


class GradientAllowance:
    """Earned with each iteration, spent with each gradient.

    Whoever is s < 1 times as fast as its peers (median) earns `share` times s/(1 - s) of the gradients
    that an iteration calls for: its peers, which do 1/s iterations meanwhile, would otherwise take all of it.
    There is no limit from s = 1 on. As long as s is not known, it is twice what is called for.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.left = BURST
        self.limit = BURST

    def earn(self, pace: float | None, called_for: float) -> None:
        """An iteration's training is over, of a client that is `pace` times as fast as its peers.

        called_for: gradients that an iteration of a client as fast as they are calls for, on average.
        """
        earned = math.inf
        if pace is None:
            earned = max(BURST, 2.0 * called_for)
        elif pace < 1.0:
            earned = self.share * called_for * pace / (1.0 - pace)
        self.limit = max(BURST, earned + 1.0)  # no part of a gradient is lost
        self.left = min(self.left + earned, self.limit)

    @property
    def suffices(self) -> bool:
        """Whether there is time for one more gradient."""
        return self.left >= 1.0

    def afford(self, gradients: float) -> bool:
        """Whether there is time for so many, which are taken out then; the last ones may be on credit."""
        if not self.suffices:
            return False
        self.spend(gradients)
        return True

    def spend(self, gradients: float = 1.0) -> None:
        """Take gradients out, or put some back."""
        self.left = min(self.left - gradients, self.limit)
