"""Sessions of clients that come and go, drawn or measured, and how they become churn events.

A session is a pair (start, end) of virtual times in seconds. Everything is a pure function of its arguments,
so a run's whole churn is known before it begins.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sim.kernel.random import Draws
from sim.world.churn import ChurnEvent, State
from sim.world.distributions import Distribution

Session = tuple[float, float]


def poisson_sessions(
    every_s: float,
    length: Distribution,
    until_s: float,
    arrivals: Draws,
    lengths: Draws,
    *,
    rate_factor: Callable[[float], float] = lambda _: 1.0,
    rate_factor_max: float = 1.0,
) -> list[Session]:
    """Sessions that begin as a Poisson process of rate rate_factor(t) / every_s, before `until_s`.

    By thinning (Lewis and Shedler 1979): candidates come at the highest rate, and each is taken with the
    probability of its time's rate relative to that.
    """
    sessions: list[Session] = []
    now_s = 0.0
    while True:
        now_s += arrivals.exponential() * every_s / rate_factor_max
        if now_s >= until_s:
            return sessions
        taken = arrivals.uniform() * rate_factor_max < rate_factor(now_s)
        length_s = length.sample(lengths)  # drawn for both, so that it is the time's own
        if taken:
            sessions.append((now_s, now_s + length_s))


def diurnal_factor(period_s: float, amplitude: float) -> Callable[[float], float]:
    """1 + amplitude sin(2 pi t / period): the rate of arrivals over a day, relative to its mean."""
    return lambda time_s: 1.0 + amplitude * math.sin(2 * math.pi * time_s / period_s)


def sessions_of_size(steps: Iterable[tuple[float, int]]) -> list[Session]:
    """Sessions that give a group its size over time, which `steps` of (time in seconds, size) describe.

    Which of its members goes when the group shrinks is not known: it is the one that came first.
    """
    up: deque[float] = deque()
    sessions: list[Session] = []
    for time_s, members in steps:
        up.extend([time_s] * (members - len(up)))
        while len(up) > members:
            sessions.append((up.popleft(), time_s))
    return sorted(sessions + [(start_s, math.inf) for start_s in up])


@dataclass(frozen=True)
class Deal:
    """Events that play sessions with the clients of a pool.

    unused: who of it was not needed. turned_away: sessions for which there was nobody left.
    """

    events: list[ChurnEvent]
    unused: list[int]
    turned_away: int


def deal(
    sessions: Iterable[Session],
    pool: Sequence[int],
    until_s: float,
    end: Literal["crash", "leave"],
    state: State,
    backup_every_s: float,
) -> Deal:
    """Play `sessions`, in the order of their starts, with the clients of `pool`.

    Each takes the client that has been away the longest. A session that begins at 0 is of a client that is
    there from the start. What would happen at `until_s` or later does not, and a session without any length
    is left out.
    """
    away = deque(pool)
    seen: set[int] = set()
    up: list[tuple[float, int]] = []  # (end, client)
    events: list[ChurnEvent] = []
    turned_away = 0
    for start_s, end_s in sessions:
        if start_s >= until_s:
            break
        if end_s <= start_s:
            continue
        while up and up[0][0] < start_s:  # not those who leave at this very instant: one event at a time
            away.append(heapq.heappop(up)[1])
        if not away:
            turned_away += 1
            continue
        client = away.popleft()
        if client in seen:
            events.append(ChurnEvent(start_s, "rejoin", (client,), state, backup_every_s))
        elif start_s > 0:
            events.append(ChurnEvent(start_s, "join", (client,)))
        seen.add(client)
        if end_s < until_s:
            events.append(ChurnEvent(end_s, end, (client,)))
        heapq.heappush(up, (end_s, client))
    return Deal(events, [client for client in pool if client not in seen], turned_away)
