"""How fast a client is beside its peers, and how many gradients for others it has time for.

A client that is slower than its peers keeps its device for itself: those who do 1/s iterations while it does
one would otherwise take all of its time.
"""

import math
import statistics
from dataclasses import dataclass

from protocols.framework.client import Client
from protocols.framework.component import Component

LOSS_SHARE = 1 / 3
"""Of the time of a gradient, that a loss takes on as many samples."""
BURST = 2.0
"""Gradients that a client can save up at least."""


@dataclass
class PeerPace:
    """Of one peer: when it was first heard of, and last: (s), and after how many of its iterations."""

    first: tuple[float, int] | None = None
    last: tuple[float, int] | None = None

    def met(self, time_s: float, iterations: int) -> None:
        """It had done so many iterations at that time; fewer than before if it has begun anew."""
        if self.last is not None and time_s <= self.last[0]:
            return
        if self.first is None or (self.last is not None and iterations < self.last[1]):
            self.first = (time_s, iterations)
        self.last = (time_s, iterations)

    @property
    def rate(self) -> float:
        """Its iterations per second since it was first heard of; 0 before it has done two more."""
        if self.first is None or self.last is None or self.last[1] < self.first[1] + 2:
            return 0.0
        return (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])


class HelpBudget(Component):
    """The gradients that a client computes for others: earned with each iteration, spent with each gradient.

    Whoever is s < 1 times as fast as its peers (median) earns `share` times s/(1 - s) of the gradients that
    an iteration calls for. There is no limit from s = 1 on. As long as s is not known, it is twice what is
    called for.
    """

    def __init__(self, client: Client, share: float) -> None:
        super().__init__(client)
        self.share = share
        self.left = BURST
        self.limit = BURST
        self.paces: dict[str, PeerPace] = {}
        self._began_s, self._iterations_before = 0.0, 0

    def life_began(self) -> None:
        self._began_s, self._iterations_before = self.client.now, self.client.iterations

    def met(self, peer: str, time_s: float, iterations: int) -> None:
        """`peer` had done so many iterations at that time."""
        self.paces.setdefault(peer, PeerPace()).met(time_s, iterations)

    @property
    def own_pace(self) -> float | None:
        """This client's iterations per second, with the one that ends now, beside the median of its peers'.

        Since it began, in this life; None as long as none of theirs is known.
        """
        rates = [self.paces[peer].rate for peer in self.client.peers if peer in self.paces]
        known = [rate for rate in rates if rate > 0]
        duration_s = self.client.now - self._began_s
        if not known or not duration_s:
            return None
        done = self.client.iterations + 1 - self._iterations_before
        return done / duration_s / statistics.median(known)

    def earn(self, called_for: float) -> None:
        """An iteration's training is over.

        called_for: gradients that an iteration of a client as fast as its peers calls for, on average.
        """
        self.earn_at(self.own_pace, called_for)

    def earn_at(self, pace: float | None, called_for: float) -> None:
        """As `earn`, of a client that is `pace` times as fast as its peers; None: nobody knows."""
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
        """Take gradients out."""
        self.left -= gradients

    def refund(self, gradients: float = 1.0) -> None:
        """Put gradients back that were taken out in vain."""
        self.left = min(self.left + gradients, self.limit)
