"""Reminders: while an actor waits for several peers' messages, those whose message is overdue are told so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from actors.round_trips import RoundTrips


class Reminders:
    """Of one `collect` for messages of class `kind`: tells each late peer `reminder`, after its time limit.

    The limit is how long that peer was waited for before (`actors.round_trips`), and doubles each time. A
    message that came because of a reminder says so by a field `repeated`, and is not measured: it tells how
    long a repetition takes.
    """

    def __init__(
        self, tell: Callable[[str, object], None], round_trips: RoundTrips, kind: type, reminder: object
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._tell = tell
        self._round_trips = round_trips
        self._kind = kind
        self._reminder = reminder
        self._began_s = loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def begin(self, missing: Iterable[str]) -> None:
        for peer in missing:
            self._set_timer(peer)

    def arrived(self, peer: str, message: Any) -> None:
        self.excused(peer)
        trip = self._round_trips.of(peer, self._kind)
        if getattr(message, "repeated", False):
            trip.failures = 0  # it is there, and has heard the reminder
        else:
            trip.measured(self._loop.time() - self._began_s)

    def excused(self, peer: str) -> None:
        timer = self._timers.pop(peer, None)
        if timer is not None:
            timer.cancel()

    def end(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _set_timer(self, peer: str) -> None:
        limit_s = self._round_trips.limit_s(peer, self._kind)
        self._timers[peer] = self._loop.call_later(limit_s, self._remind, peer)

    def _remind(self, peer: str) -> None:
        self._round_trips.of(peer, self._kind).failed()
        self._tell(peer, self._reminder)
        self._set_timer(peer)
