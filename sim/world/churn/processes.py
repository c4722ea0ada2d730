"""Processes of clients that come and go, random or measured: they make sessions and assign them to clients.

A session is a pair (start, end) of virtual times in seconds. Everything is a pure function of its arguments,
so a run's whole churn is known before it begins.
"""

from __future__ import annotations

import heapq
import math
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat

from actors.settings.base import Settings, default
from actors.settings.quantities import ClientList, PositiveDuration, Share, Within
from sim.files.input_file import InputFile
from sim.files.named_files import BesideFile
from sim.kernel.random import RandomStream, stream
from sim.plugins.point import PluginPoint
from sim.world.churn.schedule import ChurnEvent, State
from sim.world.churn.sessions import Session, SessionLength, sessions_of_clients, spot_sessions
from sim.world.participants import Participants
from sim.world.plugins import WorldPlugin

_SESSIONS_MAX = 100_000  # of one client

Speedup = Annotated[PositiveFloat, Within(0.001, 1_000_000)]


@dataclass(frozen=True)
class Deal:
    """The events of sessions that were assigned to the clients of a pool.

    unused: clients without a session. turned_away: sessions without a client.
    """

    events: list[ChurnEvent]
    unused: list[int]
    turned_away: int = 0


class ChurnProcessKind(Settings):
    """The keys of all processes."""

    clients: ClientList | None = None
    """The pool of clients that come and go; by default all. Nothing else may happen to them."""
    end: Literal["crash", "leave"] = "crash"
    """How a session ends."""
    state: State = "fresh"
    """What a client comes back with: what it had (keep), its last backup (stale), or nothing (fresh)."""
    backup_every: PositiveDuration = default("1 min")
    """Time between two backups, for stale."""
    until: PositiveDuration | None = None
    """End of the process; by default that of the run."""

    @abstractmethod
    def play(self, number: int, pool: Sequence[int], until_s: float, participants: Participants) -> Deal:
        """The events of the pool's clients before that time. number: of this process. UserError."""

    def _events(self, client: int, session: Session, until_s: float, *, again: bool) -> Iterator[ChurnEvent]:
        """How a client's session begins and ends. One that begins at 0 has no begin: the client is there."""
        start_s, end_s = session
        if again:
            yield ChurnEvent(start_s, "rejoin", (client,), self.state, self.backup_every)
        elif start_s > 0:
            yield ChurnEvent(start_s, "join", (client,))
        if end_s < until_s:
            yield ChurnEvent(end_s, self.end, (client,))


class SessionsOfAnybody(ChurnProcessKind):
    """A process that makes sessions, which are then assigned to the clients of the pool."""

    @abstractmethod
    def sessions(self, number: int, count: int, until_s: float, participants: Participants) -> list[Session]:
        """The sessions of process `number` with `count` clients in its pool, by start. UserError."""

    def play(self, number: int, pool: Sequence[int], until_s: float, participants: Participants) -> Deal:
        """Each session goes to the client that has been away the longest.

        Events at `until_s` or later are left out, and so are sessions of no length.
        """
        away = deque(pool)
        seen: set[int] = set()
        up: list[tuple[float, int]] = []  # (end, client)
        events: list[ChurnEvent] = []
        turned_away = 0
        for start_s, end_s in self.sessions(number, len(pool), until_s, participants):
            if start_s >= until_s:
                break
            if end_s <= start_s:
                continue
            while up and up[0][0] < start_s:  # a client has one event at a time
                away.append(heapq.heappop(up)[1])
            if not away:
                turned_away += 1
                continue
            client = away.popleft()
            events += self._events(client, (start_s, end_s), until_s, again=client in seen)
            seen.add(client)
            heapq.heappush(up, (end_s, client))
        return Deal(events, [client for client in pool if client not in seen], turned_away)


class SessionsOfEach(ChurnProcessKind):
    """A process that says when each client of the pool is up."""

    @abstractmethod
    def _sessions(
        self, number: int, pool: Sequence[int], until_s: float, participants: Participants
    ) -> dict[int, list[Session]]:
        """The sessions of each client in process `number`, in order. UserError."""

    def play(self, number: int, pool: Sequence[int], until_s: float, participants: Participants) -> Deal:
        events: list[ChurnEvent] = []
        unused = []
        for client, found in self._sessions(number, pool, until_s, participants).items():
            own = [session for session in found if session[0] < until_s]
            for place, session in enumerate(own):
                events += self._events(client, session, until_s, again=place > 0)
            if not own:
                unused.append(client)
        return Deal(sorted(events, key=lambda event: event.time_s), unused)


class PoissonChurn(SessionsOfAnybody):
    """Clients arrive at random and stay for a session.

    The client that has been away the longest arrives. When all are up, the arrival is turned away
    (`turned_away` in the summary). So make the pool large compared to the mean population, the mean session
    over `every`.
    """

    kind: Literal["poisson"]
    every: PositiveDuration
    """Mean time between two arrivals."""
    session: SessionLength
    """How long a client stays."""
    up_at_start: Share = 0.0
    """Share of the pool that is up at the start, each at the beginning of a session. With lengths that are
    not exponential the population takes a few sessions to settle."""

    def sessions(self, number: int, count: int, until_s: float, participants: Participants) -> list[Session]:
        seed = participants.seed
        first = RandomStream(seed, "churn", number, "first sessions")
        # Whole sessions: all of these clients begin one at 0.
        present = [(0.0, self.session.sample(first)) for _ in range(round(self.up_at_start * count))]
        # By thinning (Lewis and Shedler 1979): candidates come at the highest rate, and each is accepted with
        # the ratio of the rate at its time to that.
        arrivals = RandomStream(seed, "churn", number, "arrivals")
        lengths = RandomStream(seed, "churn", number, "sessions")
        sessions: list[Session] = []
        now_s = 0.0
        while True:
            now_s += arrivals.exponential() * self.every / self.rate_factor_max
            if now_s >= until_s:
                return [*present, *sessions]
            accepted = arrivals.uniform() * self.rate_factor_max < self.rate_factor(now_s)
            length_s = self.session.sample(lengths)  # drawn for both, so that it is the time's own
            if accepted:
                sessions.append((now_s, now_s + length_s))

    def rate_factor(self, time_s: float) -> float:
        """The rate of arrivals at a time, relative to its mean."""
        return 1.0

    @property
    def rate_factor_max(self) -> float:
        """The largest rate of arrivals, relative to the mean."""
        return 1.0


class DiurnalChurn(PoissonChurn):
    """As poisson, but the rate of arrivals is a sine over the day: more come by day than by night."""

    kind: Literal["diurnal"]  # type: ignore[assignment]
    period: PositiveDuration = default("24 h")
    """Length of a day; it begins with the rate rising from its mean."""
    amplitude: Share = 0.8
    """Amplitude of the rate, as a share of its mean."""

    def rate_factor(self, time_s: float) -> float:
        return 1.0 + self.amplitude * math.sin(2 * math.pi * time_s / self.period)

    @property
    def rate_factor_max(self) -> float:
        return 1.0 + self.amplitude


class TraceChurn(SessionsOfAnybody):
    """Measured sessions: spot instances of cloud providers in 2020."""

    kind: Literal["trace"]
    source: Literal[
        "aws_2020-03-15",
        "gcp_2020-03-01",
        "gcp_2020-03-04",
        "g4dn_us-east-1c_2020-11-20",
        "g4dn_us-east-1d_2020-11-23",
        "p2_2020-11-20",
    ]
    """A run of which single sessions are known (the first three), or a group of which the size is known."""
    speedup: Speedup = 1.0
    """How much faster than real time the trace passes: with 60, an hour is a minute."""

    def sessions(self, number: int, count: int, until_s: float, participants: Participants) -> list[Session]:
        key, faster = f'churn_process.{number}.source = "{self.source}"', self.speedup
        measured = spot_sessions(self.source, key, participants.data_folder)
        return [(start_s / faster, end_s / faster) for start_s, end_s in measured]


class TableChurn(SessionsOfEach):
    """A table says when each client of the pool is up, as it was measured, say. A client that has no row
    never comes."""

    kind: Literal["table"]
    file: Annotated[BesideFile, Field(min_length=1)]
    """CSV or .parquet file with the columns client, its number, and start_s and end_s, between which it is
    up, in seconds from the run's begin. A client's rows are in order. The path is relative to the current
    folder or else to the scenario's."""
    speedup: Speedup = 1.0
    """How much faster the table's time passes: with 60, an hour is a minute; with 1000, the table's numbers
    are milliseconds."""

    def _sessions(
        self, number: int, pool: Sequence[int], until_s: float, participants: Participants
    ) -> dict[int, list[Session]]:
        file, faster = InputFile(f"churn_process.{number}.file", Path(self.file)), self.speedup
        found = sessions_of_clients(file, pool, until_s * faster)
        return {
            client: [(start_s / faster, end_s / faster) for start_s, end_s in rows]
            for client, rows in found.items()
        }


class OwnChurn(WorldPlugin, SessionsOfEach):
    """A function of your own says when each client of the pool is up.

    It gives a client's sessions, one after the other, as pairs (start, end) in seconds; whoever has one from
    0 on is there from the start, and an end at infinity is none. It is given what it takes of `rng` (a numpy
    generator of the client's), `shared_rng` (one that gives all clients the same numbers), `client` (its
    number), `clients` (how many there are) and `until` (the end of the process, in seconds).
    """

    provided = ("rng", "shared_rng", "client", "clients", "until")

    def _sessions(
        self, number: int, pool: Sequence[int], until_s: float, participants: Participants
    ) -> dict[int, list[Session]]:
        return {client: self._of_one(number, client, until_s, participants) for client in pool}

    def _of_one(self, number: int, client: int, until_s: float, participants: Participants) -> list[Session]:
        """A client's sessions that begin before `until_s`."""
        about = self.about_client(client)

        def find() -> list[Session]:
            found = self.asked(
                about,
                rng=stream(participants.seed, "own churn", number, client),
                shared_rng=stream(participants.seed, "own churn", number, "shared"),
                client=client,
                clients=len(participants.clients),
                until=until_s,
            )
            return [*takewhile(lambda session: session[0] < until_s, self._checked(found, about))]

        return self.same_again(find, about)

    def _checked(self, found: Iterable[Any], about: Callable[[], str]) -> Iterator[Session]:
        before_s = -math.inf
        for place, item in enumerate(self.items(found, about)):
            if place == _SESSIONS_MAX:
                raise self.refusal(f"gave {_SESSIONS_MAX:,} sessions {about()}; must be fewer")
            start, end = self.row(item, "pairs (start, end)", about)
            start_s = self.number(start, 0.0, math.inf, "a start in seconds", about)
            end_s = self.number(end, 0.0, math.inf, "an end in seconds", about)
            if not before_s < start_s < end_s and start_s < math.inf:
                last = "" if place == 0 else f"; the one before ended at {before_s:g} s"
                raise self.refusal(
                    f"gave the session from {start_s:g} s to {end_s:g} s {about()}{last}; each must begin "
                    "later than the one before it ended, and end later than it begins"
                )
            yield start_s, end_s
            before_s = end_s


ChurnProcess = Annotated[
    Annotated[PoissonChurn | DiurnalChurn | TableChurn | TraceChurn, Field(discriminator="kind")],
    PluginPoint(OwnChurn),
]
