"""Reminders: while an actor waits for several peers' messages, those whose message is overdue are told so."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass, replace
from typing import Any

from actors.round_trips import INITIAL_S, RoundTrips

PROMPT = 8
"""So many reminders, a round trip apart, are told before the time between them doubles."""


class Reminders:
    """Of one `collect` for messages of class `kind`: tells each late peer `reminder`, again and again.

    A peer is late once it is waited for longer than before (`actors.round_trips` of `kind`), and for a second
    at least as long as nothing is known to have been lost, such as on reliable links. Then it is told
    whenever the answer to a reminder is overdue: what one takes is the same for reminders of all kinds. Where
    many messages are lost, doubling the time after each, as for TCP, would make a wait last for ever, and to
    repeat a few bytes once in a round trip burdens nobody: it doubles from the eighth on, and as long as
    nothing is known; and from anew when something is heard of the peer.

    A message that came because of a reminder says so by a field `repeated`, and is no measure of how late the
    peer is. It measures a reminder's round trip: of the one that it names, if both have a field `attempt`
    (from 1 on), else only if there was just one (Karn's rule). A field `delayed` says for how many seconds
    the sender had to wait for others that were late: those are no time of its own.
    """

    def __init__(
        self,
        tell: Callable[[str, object], None],
        round_trips: RoundTrips,
        kind: type,
        reminder: object,
        timeout_s: float | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._tell = tell
        self._round_trips = round_trips
        self._kind = kind
        self._reminder: Any = reminder
        self._initial_s = min(round_trips.initial_s, math.inf if timeout_s is None else timeout_s / 4)
        self._began_s = loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._reminded_s: dict[str, list[float]] = {}  # when each was told

    def begin(self, missing: Iterable[str]) -> None:
        for peer in missing:
            self._set_timer(peer)

    def arrived(self, peer: str, message: Any) -> None:
        self.excused(peer)
        if getattr(message, "repeated", False):
            self._round_trips.lossy = True
            self._answered(peer, getattr(message, "attempt", None))
            return
        waited_s = self._loop.time() - self._began_s - getattr(message, "delayed", 0.0)
        first = not self._round_trips.knows(self._kind)
        self._round_trips.of(peer, self._kind).measured(max(0.0, waited_s))
        for other in list(self._timers) if first else ():  # they were given the time for strangers
            if other not in self._reminded_s:
                self.excused(other)
                self._set_timer(other)

    def heard(self, peer: str) -> None:
        if peer in self._timers and peer in self._reminded_s:
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

    def _answered(self, peer: str, attempt: int | None) -> None:
        reminded_s = self._reminded_s.get(peer, [])
        if attempt is None:
            attempt = 1 if len(reminded_s) == 1 else 0
        if 0 < attempt <= len(reminded_s):
            self._round_trips.of(peer, Reminders).measured(self._loop.time() - reminded_s[attempt - 1])

    def _set_timer(self, peer: str) -> None:
        reminded_s = self._reminded_s.get(peer)
        if reminded_s:
            due_s = reminded_s[-1] + self._round_trips.limit_s(peer, Reminders, INITIAL_S)
        else:
            limit_s = self._round_trips.limit_s(peer, self._kind, self._initial_s)
            due_s = self._began_s + (limit_s if self._round_trips.lossy else max(limit_s, INITIAL_S))
        self._timers[peer] = self._loop.call_at(due_s, self._remind, peer)

    def _remind(self, peer: str) -> None:
        reminded_s = self._reminded_s.setdefault(peer, [])
        trip = self._round_trips.of(peer, Reminders)
        if len(reminded_s) >= (PROMPT if trip.known else 1):
            trip.failed()
        reminded_s.append(self._loop.time())
        numbered = is_dataclass(self._reminder) and hasattr(self._reminder, "attempt")
        self._tell(peer, replace(self._reminder, attempt=len(reminded_s)) if numbered else self._reminder)
        self._set_timer(peer)
