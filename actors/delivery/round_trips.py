"""Estimates of how long peers take to answer: RFC 6298, for each peer and class of message.

    first measurement R:    srtt <- R,  rttvar <- R/2
    each further one:       rttvar <- 3/4 rttvar + 1/4 |srtt - R|,  srtt <- 7/8 srtt + 1/8 R
    time limit:             srtt + max(G, 4 rttvar), twice as long after each failed reminder in a row, up
                            to a minute, as rule 2.5 of RFC 6298 allows (`doubled_wait_s`)

The limit of one question doubles with each of its attempts; the next question starts from the estimate again,
since late answers are also measured. A measurement spans the time between question and answer: network,
queues and devices. Unlike TCP, G is a millisecond and there is no minimum limit of a second, since a
repetition costs a message, not a connection's speed. Before a peer has measurements, its limit is three times
the median of the others' smoothed round trips for the same class; without any measurement, `initial_s`.
"""

import math
from collections.abc import Iterable
from statistics import median

INITIAL_S = 1.0
PROMPT = 8
"""Number of requests, a round trip apart, that are sent before the time between them doubles."""
_GRANULARITY_S = 0.001
_UNKNOWN_PEER_FACTOR = 3.0
_DOUBLED_MAX_S = 60.0
_DOUBLINGS_MAX = 60  # more would change nothing, and hundreds would overflow a float


def doubled_wait_s(wait_s: float, times: int) -> float:
    """Return `wait_s`, doubled `times` times, but at most a minute.

    With this limit, a peer that was cut off is found soon after it returns. A wait above a minute is not
    shortened.
    """
    return max(wait_s, min(wait_s * 2.0 ** min(times, _DOUBLINGS_MAX), _DOUBLED_MAX_S))


class RoundTrip:
    """Estimate for one peer and one class of message, in seconds."""

    __slots__ = ("deviation_s", "failures", "smoothed_s")

    def __init__(self) -> None:
        self.smoothed_s = math.nan  # until the first measurement
        self.deviation_s = 0.0
        self.failures = 0

    @property
    def known(self) -> bool:
        """True if there is a measurement."""
        return self.smoothed_s == self.smoothed_s

    def measured(self, seconds: float) -> None:
        """Add a measurement: an answer took `seconds`."""
        self.failures = 0
        if self.known:
            self.deviation_s += (abs(self.smoothed_s - seconds) - self.deviation_s) / 4
            self.smoothed_s += (seconds - self.smoothed_s) / 8
        else:
            self.smoothed_s, self.deviation_s = seconds, seconds / 2

    def failed(self) -> None:
        """Count a failure: no answer came within the limit."""
        self.failures += 1

    @property
    def limit_s(self) -> float:
        """Time after which an answer is overdue, before doublings for failures."""
        return self.smoothed_s + max(_GRANULARITY_S, 4 * self.deviation_s)


class RoundTrips:
    """Estimates of one actor, by peer and class of message.

    `initial_s`: time limit for a class without measurements. A second, as in RFC 6298; more if a first answer
    may take long and repeating a large message would only delay it further. `lossy`: whether a message is
    known to have been lost.
    """

    def __init__(self) -> None:
        self.initial_s = INITIAL_S
        self.lossy = False
        self._of: dict[type, dict[str, RoundTrip]] = {}

    def wait_at_first(self, patience_s: float) -> None:
        """Set the time limit for classes without measurements to a quarter of `patience_s`.

        A first model may take long to arrive, and repeating it would only delay it further.
        """
        self.initial_s = patience_s / 4

    def of(self, peer: str, kind: type) -> RoundTrip:
        """Return the estimate for `peer` and messages of class `kind`."""
        peers = self._of.setdefault(kind, {})
        trip = peers.get(peer)
        if trip is None:
            trip = peers[peer] = RoundTrip()
        return trip

    def knows(self, kind: type) -> bool:
        """Return whether messages of class `kind` have been measured."""
        return any(trip.known for trip in self._of.get(kind, {}).values())

    def usual_s(self, peers: Iterable[str], kind: type) -> float:
        """Return the smoothed time (s) of the slowest of `peers` for class `kind`; 0 without measurements."""
        trips = [self.of(peer, kind) for peer in peers]
        return max([trip.smoothed_s for trip in trips if trip.known], default=0.0)

    def typical_s(self, peer: str, kind: type) -> float:
        """Return the smoothed time (s) of `peer` for class `kind`; for an unknown peer the others' median.

        Without any measurement, `initial_s`.
        """
        if not self.knows(kind):
            return self.initial_s
        return max(self._smoothed_s(self.of(peer, kind), kind), _GRANULARITY_S)

    def limit_s(self, peer: str, kind: type, initial_s: float | None = None) -> float:
        """Return the seconds after which an answer of `peer` to a message of class `kind` is overdue.

        The result doubles with each failure in a row. initial_s: used instead of the attribute of this name.
        """
        trip = self.of(peer, kind)
        if trip.known:
            limit_s = trip.limit_s
        elif self.knows(kind):
            limit_s = max(_UNKNOWN_PEER_FACTOR * self._smoothed_s(trip, kind), _GRANULARITY_S)
        else:
            limit_s = max(self.initial_s if initial_s is None else initial_s, _GRANULARITY_S)
        return doubled_wait_s(limit_s, trip.failures)

    def _smoothed_s(self, trip: RoundTrip, kind: type) -> float:
        if trip.known:
            return trip.smoothed_s
        return median([other.smoothed_s for other in self._of[kind].values() if other.known])
