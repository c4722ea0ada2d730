"""Requests for messages that are overdue, while an actor waits for several peers' messages of a round."""

import asyncio
import math
from collections.abc import Callable, Iterable

from actors.delivery.round_trips import INITIAL_S, RoundTrip, RoundTrips
from actors.message import Envelope, RoundMark

PROMPT = 8
"""So many requests, a round trip apart, are sent before the time between them doubles."""


class Reminders:
    """Of one wait for messages of class `kind`: asks each late peer for its message, again and again.

    A peer is late once it is waited for longer than before (`actors.delivery.round_trips`), and for a second
    at least as long as nothing is known to have been lost, such as on reliable links. Then it is asked
    whenever the answer to a request is overdue: what one takes is the same for requests of all kinds. Where
    many messages are lost, doubling the time after each, as for TCP, would make a wait last for ever, and to
    repeat a few bytes once in a round trip burdens nobody: it doubles from the eighth on, and as long as
    nothing is known; and from anew when something is heard of the peer.

    A message that was told again is no measure of how late the peer is. It measures the round trip of the
    request that its mark names (Karn's rule). The time for which its sender itself was delayed by lost
    messages does not count as its own.
    """

    def __init__(
        self,
        request: Callable[[str, int], None],
        round_trips: RoundTrips,
        kind: type,
        timeout_s: float | None = None,
    ) -> None:
        """request(peer, attempt): send a request, the how many-th to this peer, from 1 on."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._request = request
        self._round_trips = round_trips
        self._kind = kind
        self._initial_s = min(round_trips.initial_s, math.inf if timeout_s is None else timeout_s / 4)
        self._began_s = loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._requested_s: dict[str, list[float]] = {}  # when each was asked

    def begin(self, missing: Iterable[str]) -> None:
        for peer in missing:
            self._set_timer(peer)

    def arrived(self, envelope: Envelope) -> None:
        peer, mark = envelope.sender, envelope.request
        self.excused(peer)
        assert isinstance(mark, RoundMark)
        if mark.repeat is not None:
            self._round_trips.lossy = True
            requested_s = self._requested_s.get(peer, [])
            if 0 < mark.repeat <= len(requested_s):
                took_s = self._loop.time() - requested_s[mark.repeat - 1]
                self._round_trips.of(peer, Reminders).measured(took_s)
            return
        waited_s = self._loop.time() - self._began_s - mark.delayed_s
        first = not self._round_trips.knows(self._kind)
        self._round_trips.of(peer, self._kind).measured(max(0.0, waited_s))
        for other in list(self._timers) if first else ():  # they were given the time for strangers
            if other not in self._requested_s:
                self.excused(other)
                self._set_timer(other)

    def heard(self, peer: str) -> None:
        if peer in self._timers and peer in self._requested_s:
            self._round_trips.of(peer, Reminders).failures = 0
            self.excused(peer)
            self._set_timer(peer)

    def excused(self, peer: str) -> None:
        timer = self._timers.pop(peer, None)
        if timer is not None:
            timer.cancel()

    def end(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _set_timer(self, peer: str) -> None:
        requested_s = self._requested_s.get(peer)
        if requested_s:
            due_s = requested_s[-1] + self._round_trips.limit_s(peer, Reminders, INITIAL_S)
        else:
            limit_s = self._round_trips.limit_s(peer, self._kind, self._initial_s)
            due_s = self._began_s + (limit_s if self._round_trips.lossy else max(limit_s, INITIAL_S))
        self._timers[peer] = self._loop.call_at(due_s, self._overdue, peer)

    def _prompt(self, trip: RoundTrip) -> int:
        """How many requests are sent before the time between them doubles."""
        return PROMPT if trip.known else 1

    def _overdue(self, peer: str) -> None:
        requested_s = self._requested_s.setdefault(peer, [])
        trip = self._round_trips.of(peer, Reminders)
        if len(requested_s) >= self._prompt(trip):
            trip.failed()
        requested_s.append(self._loop.time())
        self._request(peer, len(requested_s))
        self._set_timer(peer)
