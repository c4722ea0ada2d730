"""Churn processes, random or measured: they generate sessions and assign them to clients.

A session is a pair (start, end) of virtual times in seconds. Everything is a pure function of its arguments,
so the whole churn of a run is known before the run starts.
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
from sim.errors import UserError
from sim.files.input_file import InputFile
from sim.files.named_files import BesideFile
from sim.kernel.random import RandomStream, stream
from sim.plugins.point import PluginPoint
from sim.world.churn.schedule import ChurnEvent, State
from sim.world.churn.sessions import Session, SessionLength, read_client_sessions, read_spot_instance_sessions
from sim.world.participants import Participants
from sim.world.plugins import WorldPlugin

_SESSIONS_MAX = 100_000  # of one client, from the user's function
_GENERATED_MAX = 2_000_000  # sessions of a process, or of one client; an invalid kind must not hang

Speedup = Annotated[PositiveFloat, Within(0.001, 1_000_000)]


@dataclass(frozen=True)
class AssignedSessions:
    """Events of the sessions that were assigned to the clients of a pool.

    unused: clients without a session. turned_away: sessions without a client.
    """

    events: list[ChurnEvent]
    unused: list[int]
    turned_away: int = 0


class ChurnProcessKind(Settings):
    """Keys of all processes. A kind derives from `SessionsOfAnybody` or `SessionsOfEach`."""

    clients: ClientList | None = None
    """Pool of clients that join and depart; by default all. No other churn event may name them."""
    end: Literal["crash", "leave"] = "crash"
    """End of a session: a crash (unannounced), or a departure (leave)."""
    state: State = "fresh"
    """State after a rejoin: the state before the departure (keep), the last backup (stale), or none
    (fresh)."""
    backup_every: PositiveDuration = default("1 min")
    """Time between two backups, for stale."""
    until: PositiveDuration | None = None
    """End of the process; by default the end of the run."""

    @property
    @abstractmethod
    def interval(self) -> tuple[str, float] | None:
        """Key and value of the mean time in seconds between two generated sessions of the pool.

        For a kind that states the sessions of each client, the mean time between two sessions of a client.
        None for a kind that does not generate sessions: they are measured, or listed. The reader of a
        scenario rejects an interval with which too many clients would arrive.
        """

    @abstractmethod
    def play(
        self, number: int, pool: Sequence[int], until_s: float, participants: Participants
    ) -> AssignedSessions:
        """Return the events of the pool's clients before `until_s`, in process `number`. Raises UserError."""

    def _impossible(self, session: Session, must: str) -> ValueError:
        """Return the error for a session that this kind must not generate."""
        start_s, end_s = session
        kind = type(self).__name__
        return ValueError(f"{kind} generated the session from {start_s:g} s to {end_s:g} s: must {must}")

    def _events(self, client: int, session: Session, until_s: float, *, again: bool) -> Iterator[ChurnEvent]:
        """Yield the events of a client's session. A session that starts at 0 has no join event."""
        start_s, end_s = session
        if again:
            yield ChurnEvent(start_s, "rejoin", (client,), self.state, self.backup_every)
        elif start_s > 0:
            yield ChurnEvent(start_s, "join", (client,))
        if end_s < until_s:
            yield ChurnEvent(end_s, self.end, (client,))


class SessionsOfAnybody(ChurnProcessKind):
    """Process that generates sessions and assigns them to the clients of the pool."""

    @abstractmethod
    def sessions(
        self, number: int, count: int, until_s: float, participants: Participants
    ) -> Iterator[Session]:
        """Yield the sessions of process `number` for a pool of `count` clients by start. Raises UserError."""

    def play(
        self, number: int, pool: Sequence[int], until_s: float, participants: Participants
    ) -> AssignedSessions:
        """Assign each session to the client that has been away the longest.

        A session that starts while no client is away is turned away. Events at `until_s` or later are
        omitted, and so are sessions of length 0.
        """
        away = deque(pool)
        seen: set[int] = set()
        up: list[tuple[float, int]] = []  # (end, client)
        events: list[ChurnEvent] = []
        turned_away, before_s = 0, 0.0
        for start_s, end_s in _limit_sessions(
            number, self.sessions(number, len(pool), until_s, participants)
        ):
            if not start_s >= before_s:
                raise self._impossible((start_s, end_s), f"start at {before_s:g} s or later")
            before_s = start_s
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
        return AssignedSessions(events, [client for client in pool if client not in seen], turned_away)


class SessionsOfEach(ChurnProcessKind):
    """Process that states the sessions of each client of the pool."""

    @abstractmethod
    def sessions_of_each(
        self, number: int, pool: Sequence[int], until_s: float, participants: Participants
    ) -> Iterator[tuple[int, Iterable[Session]]]:
        """Yield each client of the pool with its sessions in process `number`, in order. Raises UserError.

        A client with a session that starts at 0 is up at the start. No session may start before 0.
        """

    def play(
        self, number: int, pool: Sequence[int], until_s: float, participants: Participants
    ) -> AssignedSessions:
        events: list[ChurnEvent] = []
        unused = []
        for client, found in self.sessions_of_each(number, pool, until_s, participants):
            own = [*takewhile(lambda session: not session[0] >= until_s, _limit_sessions(number, found))]
            before_s = -math.inf
            for index, session in enumerate(own):
                start_s, end_s = session
                if not (start_s >= 0 and before_s < start_s < end_s):
                    raise self._impossible(
                        session, "be within the run, in order, and end later than it starts"
                    )
                before_s = end_s
                events += self._events(client, session, until_s, again=index > 0)
            if not own:
                unused.append(client)
        return AssignedSessions(sorted(events, key=lambda event: event.time_s), unused)


def _limit_sessions(number: int, sessions: Iterable[Session]) -> Iterator[Session]:
    """Yield the sessions of process `number`. Raises UserError if they are too many to keep in memory."""
    for count, session in enumerate(sessions):
        if count == _GENERATED_MAX:
            raise UserError(
                f"churn_process.{number} generates more than {_GENERATED_MAX:,} sessions; must be fewer: "
                "state a longer time between sessions, or an earlier end (until)"
            )
        yield session


class PoissonChurn(SessionsOfAnybody):
    """Clients arrive at random and stay for a session.

    The client that has been away the longest arrives. If all clients are up, the arrival is turned away
    (`turned_away` in the summary). Name many more `clients` than the mean population,
    which is the mean session length divided by `every`.
    """

    kind: Literal["poisson"]
    every: PositiveDuration
    """Mean time between two arrivals."""
    session: SessionLength
    """Length of a session."""
    up_at_start: Share = 0.0
    """Share of the process's clients that is up at the start; each of these clients starts a session at 0. If
    session lengths are not exponential, the population takes a few sessions to settle."""

    @property
    def interval(self) -> tuple[str, float]:
        return "every", self.every

    def sessions(
        self, number: int, count: int, until_s: float, participants: Participants
    ) -> Iterator[Session]:
        seed = participants.seed
        first = RandomStream(seed, "churn", number, "first sessions")
        for _ in range(round(self.up_at_start * count)):
            yield 0.0, self.session.sample(first)  # a whole session
        # By thinning (Lewis and Shedler 1979): candidates arrive at the highest rate. Each is accepted with
        # the ratio of the rate at its time to the highest rate.
        arrivals = RandomStream(seed, "churn", number, "arrivals")
        lengths = RandomStream(seed, "churn", number, "sessions")
        now_s = 0.0
        while True:
            now_s += arrivals.exponential() * self.every / self.rate_factor_max
            if now_s >= until_s:
                return
            accepted = arrivals.uniform() * self.rate_factor_max < self.rate_factor(now_s)
            length_s = self.session.sample(lengths)  # drawn even if rejected: depends on the time only
            if accepted:
                yield now_s, now_s + length_s

    def rate_factor(self, time_s: float) -> float:
        """Return the rate of arrivals at a time, relative to the mean rate."""
        return 1.0

    @property
    def rate_factor_max(self) -> float:
        """Largest rate of arrivals, relative to the mean rate."""
        return 1.0


class DiurnalChurn(PoissonChurn):
    """Like poisson, but the rate of arrivals is a sine over the day: more clients arrive by day."""

    kind: Literal["diurnal"]  # type: ignore[assignment]
    period: PositiveDuration = default("24 h")
    """Length of a day. A day starts when the rate rises above its mean."""
    amplitude: Share = 0.8
    """Amplitude of the rate, as a share of the mean rate."""

    def rate_factor(self, time_s: float) -> float:
        return 1.0 + self.amplitude * math.sin(2 * math.pi * time_s / self.period)

    @property
    def rate_factor_max(self) -> float:
        return 1.0 + self.amplitude


class TraceChurn(SessionsOfAnybody):
    """Measured sessions of spot instances of cloud providers in 2020."""

    kind: Literal["trace"]
    source: Literal[
        "aws_2020-03-15",
        "gcp_2020-03-01",
        "gcp_2020-03-04",
        "g4dn_us-east-1c_2020-11-20",
        "g4dn_us-east-1d_2020-11-23",
        "p2_2020-11-20",
    ]
    """Trace: a measured run with known sessions (the three that start with aws or gcp), or a group of
    instances of which only the size over time is known."""
    speedup: Speedup = 1.0
    """Speedup of the trace over real time: with 60, an hour of the trace takes a minute."""

    @property
    def interval(self) -> None:
        return None

    def sessions(
        self, number: int, count: int, until_s: float, participants: Participants
    ) -> Iterator[Session]:
        key, faster = f'churn_process.{number}.source = "{self.source}"', self.speedup
        measured = read_spot_instance_sessions(self.source, key, participants.data_folder)
        return ((start_s / faster, end_s / faster) for start_s, end_s in measured)


class TableChurn(SessionsOfEach):
    """A table lists the sessions of each client in `clients`, for example measured sessions. A client without
    a row never joins."""

    kind: Literal["table"]
    file: Annotated[BesideFile, Field(min_length=1)]
    """CSV or .parquet file with the columns `client` (number), `start_s` and `end_s`: start and end of a
    session, in seconds from the start of the run. The rows of a client must be in order. The path is relative
    to the current folder or, if it does not exist there, to the folder of the scenario."""
    speedup: Speedup = 1.0
    """Speedup of the table: with 60, an hour of the table takes a minute; with 1000, the times in the table
    are milliseconds."""

    @property
    def interval(self) -> None:
        return None

    def sessions_of_each(
        self, number: int, pool: Sequence[int], until_s: float, participants: Participants
    ) -> Iterator[tuple[int, Iterable[Session]]]:
        file, faster = InputFile(f"churn_process.{number}.file", Path(self.file)), self.speedup
        found = read_client_sessions(file, pool, until_s * faster)
        for client, rows in found.items():
            yield client, [(start_s / faster, end_s / faster) for start_s, end_s in rows]


class OwnChurn(WorldPlugin, SessionsOfEach):
    """Your own function returns the sessions of each client of the pool.

    It returns the sessions of one client, in order, as pairs (start, end) in seconds. A session from 0 on
    means that the client is up at the start; an infinite end means no end. The function may have any of these
    parameters: `rng` (a numpy generator for this client), `shared_rng` (a generator with the same random
    numbers for all clients), `client` (the client's number), `clients` (the number of clients) and `until`
    (the end of the process, in seconds).
    """

    provided = ("rng", "shared_rng", "client", "clients", "until")

    @property
    def interval(self) -> None:
        return None  # the number of sessions that the function may return is limited

    def sessions_of_each(
        self, number: int, pool: Sequence[int], until_s: float, participants: Participants
    ) -> Iterator[tuple[int, Iterable[Session]]]:
        for client in pool:
            yield client, self._of_one(number, client, until_s, participants)

    def _of_one(self, number: int, client: int, until_s: float, participants: Participants) -> list[Session]:
        """Return a client's sessions that start before `until_s`."""
        about = self.about_client(client)

        def find() -> list[Session]:
            found = self.call_checked(
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
        for index, item in enumerate(self.items(found, about)):
            if index == _SESSIONS_MAX:
                raise self.refusal(f"returned more than {_SESSIONS_MAX:,} sessions {about()}; return fewer")
            start, end = self.row(item, "pairs (start, end)", about)
            start_s = self.number(start, 0.0, math.inf, "a start in seconds", about)
            end_s = self.number(end, 0.0, math.inf, "an end in seconds", about)
            if not before_s < start_s < end_s and start_s < math.inf:
                last = "" if index == 0 else f"; the previous session ended at {before_s:g} s"
                raise self.refusal(
                    f"returned the session from {start_s:g} s to {end_s:g} s {about()}{last}; each must "
                    "start after the end of the previous session, and end later than it starts"
                )
            yield start_s, end_s
            before_s = end_s


ChurnProcess = Annotated[
    Annotated[PoissonChurn | DiurnalChurn | TableChurn | TraceChurn, Field(discriminator="kind")],
    PluginPoint(OwnChurn),
]
