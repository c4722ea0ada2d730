"""Pace of a client relative to its peers, and the share of its device's time for them.

A client that is slower than its peers keeps most of its device for itself. Otherwise, the requests of peers
that do many iterations while it does one would take all of its time.
"""

import math
import statistics
from dataclasses import dataclass

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.per_peer import PerPeer

LOSS_SHARE = 1 / 3
"""Time of a loss, as a share of the time of a gradient on as many samples."""
BURST = 2.0
"""Minimum number of gradients that a client can save up."""
BEHIND = 0.5
"""Relative pace below which a client is behind: its iterations per second over its peers' median."""


@dataclass
class PeerPace:
    """Progress of one peer: (time in s, number of iterations) at its first and at its last message."""

    first: tuple[float, int] | None = None
    last: tuple[float, int] | None = None

    def met(self, time_s: float, iterations: int) -> None:
        """Record the peer's iterations at a time; fewer than before mean that it has restarted."""
        if self.last is not None and time_s <= self.last[0]:
            return
        if self.first is None or (self.last is not None and iterations < self.last[1]):
            self.first = (time_s, iterations)
        self.last = (time_s, iterations)

    @property
    def rate(self) -> float:
        """Iterations of the peer per second since its first message; 0 until it has done two since then."""
        if self.first is None or self.last is None or self.last[1] < self.first[1] + 2:
            return 0.0
        return (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])


class RelativePace(Component):
    """Pace of a client relative to its peers, from the iteration counts in their messages."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.paces = PerPeer(client, PeerPace)
        self._started_s, self._iterations_before = 0.0, 0

    def session_started(self) -> None:
        self._started_s, self._iterations_before = self.client.now, self.client.iterations

    def met(self, peer: str, time_s: float, iterations: int) -> None:
        """Record that `peer` has completed `iterations` at the time `time_s` (seconds)."""
        self.paces[peer].met(time_s, iterations)

    @property
    def own_pace(self) -> float | None:
        """Iterations per second of this client, divided by the median rate of its peers; None if unknown.

        The iterations are counted from the start of this session. The one in progress is included, so this is
        an upper bound of the pace.
        """
        known = [rate for rate in self._rates() if rate > 0]
        return self._beside(statistics.median(known)) if known else None

    @property
    def is_far_behind(self) -> bool:
        """True if this client's pace is certainly below `BEHIND`, even before its first iteration ends.

        At first only the rates of the fastest peers are known; the others count as slower than this client.
        This client is also far behind if its rate is less than a quarter of the second fastest peer's.
        """
        rates = sorted(self._rates(), reverse=True)
        if not rates:
            return False
        beside_median = self._beside(statistics.median_low(rates))
        beside_fast = self._beside(rates[1]) if len(rates) > 1 else None
        return (beside_median or math.inf) < BEHIND or (beside_fast or math.inf) < BEHIND / 2

    def _rates(self) -> list[float]:
        return [self.paces[peer].rate for peer in self.client.peers if peer in self.paces]

    def _beside(self, rate: float) -> float | None:
        """Return this client's iterations per second, divided by a peer's; None if unknown."""
        duration_s = self.client.now - self._started_s
        if not rate or not duration_s:
            return None
        done = self.client.iterations + 1 - self._iterations_before
        return done / duration_s / rate


class TimeForPeers(RelativePace):
    """Gradients that a client computes for its peers: earned by its own training, spent one by one.

    A client whose pace is below `BEHIND`, relative to the median of its peers, spends at most a share of its
    device time on peers. Other clients have no limit. While the pace is unknown, the limit is twice the usual
    demand of the peers. The unit is the time of a gradient, which equals the time of a training step.

    pays: whether peers help this client. If not, a client that is far behind earns no time for its peers.
    was_far_behind: `is_far_behind` when the pace was last determined.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.left = BURST
        self.limit = BURST
        self.pace: float | None = None  # relative to the peers; None if unknown
        self.pays = True
        self.was_far_behind = False

    @property
    def is_behind(self) -> bool:
        """True if this client is so slow that it must limit its work for its peers."""
        return self.pace is not None and self.pace < BEHIND

    def earn(self, steps: float, share: float, called_for: float) -> None:
        """Add the time earned by an iteration of `steps` training steps.

        share: share of the time for peers, if this client is behind. called_for: average number
        of gradients that peers request during one iteration, for a client that is as fast as its peers.
        While the pace is unknown, the client earns twice this number.
        """
        self.pace, self.was_far_behind = self.own_pace, self.is_far_behind
        if self.pace is None:
            earned = 2.0 * called_for
        elif self.is_behind and share < 1.0:
            earned = steps * share / (1.0 - share) if self.pays or not self.was_far_behind else 0.0
        else:
            earned = math.inf
        self.limit = max(BURST, earned + 1.0)  # keeps fractions of a gradient
        self.left = min(self.left + earned, self.limit)

    @property
    def suffices(self) -> bool:
        """True if there is time for another gradient."""
        if self.pace is None and self.left >= 1.0 and self.is_far_behind:
            self._limit_first_iteration()
        return self.left >= 1.0

    def _limit_first_iteration(self) -> None:
        """Withdraw the time that was earned while the pace was unknown.

        The first iteration of a slow client lasts as long as many iterations of its peers, which all send it
        requests.
        """
        self.pace, self.was_far_behind = self.own_pace, True
        self.limit = self.left = min(self.left, BURST)

    @property
    def has_credit(self) -> bool:
        """True if a peer's request can be answered with time that is earned later."""
        return self.left > -BURST

    def try_spend(self, gradients: float) -> bool:
        """Spend `gradients`, and return True, if there is time for one at least; the rest is on credit."""
        if not self.suffices:
            return False
        self.spend(gradients)
        return True

    def spend(self, gradients: float = 1.0) -> None:
        """Spend gradients."""
        self.left -= gradients

    def refund(self, gradients: float = 1.0) -> None:
        """Give back time for gradients that was spent but not used."""
        self.left = min(self.left + gradients, self.limit)
