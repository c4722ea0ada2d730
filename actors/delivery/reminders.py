"""Requests for overdue messages, while an actor waits for several peers' messages of a round."""

import asyncio
import math
from collections.abc import Callable, Iterable

from actors.delivery.round_trips import INITIAL_S, PROMPT, RoundTrips
from actors.message import Envelope, RoundMark


class Reminders:
    """Repeated requests to late peers, during one wait for messages of class `kind`.

    A peer is late when the wait for it exceeds its limit (`actors.delivery.round_trips`). As long as no
    message is known to be lost, for example on reliable links, that limit is at least a second. A late peer
    gets a request whenever the answer to the previous request is overdue; the limit for these answers is the
    same for all kinds. Where many messages are lost, doubling the time after each request, as TCP does, would
    make a wait very long, and a few bytes in each round trip are no burden. The time therefore doubles only
    when eight requests are unanswered, or one if the peer has no measurements. When anything comes from the
    peer, the time returns to its undoubled value. If messages are known to be lost, and a peer sends another
    message during the wait, its limit is at most a second, unless messages of class `kind` have been
    measured.

    A message that was sent again does not measure how late the peer is. It measures the round trip of the
    request that its mark names (Karn's rule). The sender's own delay due to lost messages is subtracted.
    """

    def __init__(
        self,
        request: Callable[[str, int], None],
        round_trips: RoundTrips,
        kind: type,
        timeout_s: float | None = None,
    ) -> None:
        """Start without a timer. request(peer, attempt): sends a request; attempts count from 1."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._request = request
        self._round_trips = round_trips
        self._kind = kind
        self._initial_s = min(round_trips.initial_s, math.inf if timeout_s is None else timeout_s / 4)
        self._started_s = loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._requested_s: dict[str, list[float]] = {}  # times of the requests

    def start(self, missing: Iterable[str]) -> None:
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
        waited_s = self._loop.time() - self._started_s - mark.delayed_s
        first = not self._round_trips.knows(self._kind)
        self._round_trips.of(peer, self._kind).measured(max(0.0, waited_s))
        for other in list(self._timers) if first else ():  # these still had the limit for unknown peers
            if other not in self._requested_s:
                self.excused(other)
                self._set_timer(other)

    def peer_active(self, peer: str) -> None:
        if peer in self._timers and (peer in self._requested_s or self._round_trips.lossy):
            self._round_trips.of(peer, Reminders).failures = 0
            self.excused(peer)
            self._set_timer(peer, INITIAL_S)

    def excused(self, peer: str) -> None:
        timer = self._timers.pop(peer, None)
        if timer is not None:
            timer.cancel()

    def end(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _set_timer(self, peer: str, initial_s: float = math.inf) -> None:
        requested_s = self._requested_s.get(peer)
        if requested_s:
            due_s = requested_s[-1] + self._round_trips.limit_s(peer, Reminders, INITIAL_S)
        else:
            limit_s = self._round_trips.limit_s(peer, self._kind, min(self._initial_s, initial_s))
            due_s = self._started_s + (limit_s if self._round_trips.lossy else max(limit_s, INITIAL_S))
        self._timers[peer] = self._loop.call_at(due_s, self._overdue, peer)

    def _doubles(self, peer: str, requests: int) -> bool:
        """Return whether the time to the next request to a peer is doubled after `requests` requests."""
        return requests >= (PROMPT if self._round_trips.of(peer, Reminders).known else 1)

    def _overdue(self, peer: str) -> None:
        requested_s = self._requested_s.setdefault(peer, [])
        if self._doubles(peer, len(requested_s)):
            self._round_trips.of(peer, Reminders).failed()
        requested_s.append(self._loop.time())
        self._request(peer, len(requested_s))
        self._set_timer(peer)
