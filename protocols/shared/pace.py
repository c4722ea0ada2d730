"""How fast a client is beside its peers, and how much of its device's time is for them.

A client that is slower than its peers keeps most of its device for itself: those who do 1/s iterations while
it does one would otherwise take all of its time.
"""

import math
import statistics
from dataclasses import dataclass

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.per_peer import PerPeer

LOSS_SHARE = 1 / 3
"""How long a loss takes, as a share of the time of a gradient on as many samples."""
BURST = 2.0
"""How many gradients a client can save up at least."""
BEHIND = 0.5
"""A client is behind if it does fewer iterations per second than so many of its peers' (median)."""


@dataclass
class PeerPace:
    """One peer's progress when it was first and last heard of: pairs of the time (s) and its iterations."""

    first: tuple[float, int] | None = None
    last: tuple[float, int] | None = None

    def met(self, time_s: float, iterations: int) -> None:
        """Note that it had done so many iterations at that time; fewer than before if it has begun anew."""
        if self.last is not None and time_s <= self.last[0]:
            return
        if self.first is None or (self.last is not None and iterations < self.last[1]):
            self.first = (time_s, iterations)
        self.last = (time_s, iterations)

    @property
    def rate(self) -> float:
        """The peer's iterations per second since it was first heard of; 0 until it has done two more."""
        if self.first is None or self.last is None or self.last[1] < self.first[1] + 2:
            return 0.0
        return (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])


class TimeForPeers(Component):
    """The gradients that a client computes for its peers: earned by its own training, spent one by one.

    A client that is `BEHIND` its peers (median) spends at most a share of its device's time on them. Others
    have no limit. The unit is the time of a gradient, which is that of a training step.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.left = BURST
        self.limit = BURST
        self.pace: float | None = None  # beside the peers, None: nobody knows
        self.paces = PerPeer(client, PeerPace)
        self._began_s, self._iterations_before = 0.0, 0

    def life_began(self) -> None:
        self._began_s, self._iterations_before = self.client.now, self.client.iterations

    @property
    def is_behind(self) -> bool:
        """Whether this client is so slow that it has to choose what it does for its peers."""
        return self.pace is not None and self.pace < BEHIND

    def met(self, peer: str, time_s: float, iterations: int) -> None:
        """`peer` had done so many iterations at that time."""
        self.paces[peer].met(time_s, iterations)

    @property
    def own_pace(self) -> float | None:
        """This client's iterations per second, divided by the median of its peers'; None if none is known.

        Counted since this life began, with the iteration that ends now.
        """
        rates = [self.paces[peer].rate for peer in self.client.peers if peer in self.paces]
        known = [rate for rate in rates if rate > 0]
        duration_s = self.client.now - self._began_s
        if not known or not duration_s:
            return None
        done = self.client.iterations + 1 - self._iterations_before
        return done / duration_s / statistics.median(known)

    def earn(self, steps: float, share: float, called_for: float) -> None:
        """An iteration of so many training steps is over.

        share: of the time, if this client is behind. called_for: gradients that an iteration of a client as
        fast as its peers calls for, on average; they are doubled as long as nobody knows.
        """
        self.pace = self.own_pace
        if self.pace is None:
            earned = 2.0 * called_for
        elif self.is_behind and share < 1.0:
            earned = steps * share / (1.0 - share)
        else:
            earned = math.inf
        self.limit = max(BURST, earned + 1.0)  # no part of a gradient is lost
        self.left = min(self.left + earned, self.limit)

    @property
    def suffices(self) -> bool:
        """Whether there is time for one more gradient."""
        return self.left >= 1.0

    @property
    def has_credit(self) -> bool:
        """Whether a peer's request can be answered with time that is earned later."""
        return self.left > -BURST

    def try_spend(self, gradients: float) -> bool:
        """Spend so many gradients if there is time for one, the others on credit; whether they were spent."""
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
