"""Joins, departures, crashes and returns of clients: single events, and processes that generate many."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings, default, exactly_one
from actors.settings.quantities import ClientList, CountOrZero, Duration, PositiveDuration
from actors.settings.units import DURATION
from sim.errors import UserError
from sim.kernel.random import RandomStream, key
from sim.scenario.sections.change import Change
from sim.world.churn.processes import AssignedSessions, ChurnProcess
from sim.world.churn.schedule import (
    ChurnEvent,
    State,
    absent_at_start,
    departures_with_rejoins,
    eligible_clients,
    validate_schedule,
)
from sim.world.participants import Participants


class Churn(Settings):
    """One event of some clients. A client with a join as its first event is absent at the run's start."""

    at: Duration
    """Virtual time of the event."""
    event: Literal["join", "leave", "crash", "rejoin"]
    """join: first arrival; leave: announced departure; crash: unannounced departure; rejoin: return after
    either."""
    clients: ClientList | None = None
    """The clients."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the clients to which the event can happen at that time, drawn at random, instead of `clients`.
    A join can happen to the clients that no other entry names, that no earlier join has drawn, and that are
    in no `[[churn_process]]`."""
    cluster: CountOrZero | None = None
    """True cluster, instead of `clients`: all clients in it to which the event can happen at that time."""
    spread: Duration = default("0 s")
    """Time after `at` within which the events occur, each client's at a random time."""
    state: State = "keep"
    """State after a rejoin: the client's last state (keep), the model of its last backup (stale), or the
    state of a newcomer (fresh)."""
    backup_every: PositiveDuration = default("1 min")
    """Time between two backups, for a stale rejoin; the same for all rejoins of one client."""

    @model_validator(mode="after")
    def _consistent(self) -> Churn:
        exactly_one(self, "clients", "share", "cluster")
        if self.state != "keep" and self.event != "rejoin":
            problem = f"only a rejoin can have this state, but this event is a {self.event}"
            raise SettingError("state", self.state, problem)
        return self


@dataclass(frozen=True)
class ChurnSchedule:
    """All churn events of a run.

    absent: the clients that are down at the start. turned_away: the number of arrivals for which a
    process had no client left. returns: the state with which a client rejoins, and the seconds between its
    backups, for every client of a process, even if it rejoins only after the end of the run: otherwise, the
    duration of the run would change earlier results. staying: client and time (seconds) of the events that a
    change prevents. notices: sentences about entries with less effect than stated.
    """

    events: list[ChurnEvent]
    absent: tuple[int, ...]
    turned_away: int
    returns: Mapping[int, tuple[State, float]]
    staying: frozenset[tuple[int, float]]
    notices: tuple[str, ...] = ()


def churn_schedule(
    entries: Sequence[Churn],
    processes: Sequence[ChurnProcess],
    changes: Sequence[Change],
    participants: Participants,
    run_s: float | None,
) -> ChurnSchedule:
    """Return all joins, departures and returns in a run of `run_s` seconds; None: a run without a duration.

    Raises:
        UserError: an event is impossible, no client is up at the start, or a change prevents no departure.
    """
    count = len(participants.clients)
    pools = _pools(entries, processes, count)
    deals = [
        _process_events(number, process, pool, participants, run_s)
        for number, (process, pool) in enumerate(zip(processes, pools, strict=True))
    ]
    taken = {client for pool in pools for client in pool}
    free = [client for client in range(count) if client not in taken]
    notices = list(_idle_process_lines(deals))
    events = _scheduled(entries, free, participants, math.inf if run_s is None else run_s, notices)
    for found in deals:
        events += found.events
    try:
        validate_schedule(events, count)
    except ValueError as error:
        raise UserError(f"churn: {error}") from None
    unused = {client for found in deals for client in found.unused}
    absent = tuple(sorted({*absent_at_start(events), *unused}))
    if len(absent) == count:
        raise UserError("churn: no client is up at the start; at least one must be")
    returns = {
        client: (process.state, process.backup_every)
        for process, pool in zip(processes, pools, strict=True)
        for client in pool
    }
    turned_away = sum(found.turned_away for found in deals)
    staying: set[tuple[int, float]] = set()
    for number, change in enumerate(changes):
        if change.churn is not None:
            prevented = departures_with_rejoins(events, change.at, change.churn.stay, change.churn.clients)
            if not prevented:
                raise UserError(
                    f"change.{number}.churn: none of its clients leaves or crashes between {change.at:g} s "
                    f"and {change.at + change.churn.stay:g} s"
                )
            staying |= prevented
    return ChurnSchedule(events, absent, turned_away, returns, frozenset(staying), tuple(notices))


def _idle_process_lines(deals: Sequence[AssignedSessions]) -> Iterator[str]:
    """Return a line for each process without events in the run."""
    for number, found in enumerate(deals):
        if not found.events:
            yield f"churn_process.{number} causes no join or departure before the end of the run"


# --- single events ------------------------------------------------------------------------------------------


def _scheduled(
    entries: Sequence[Churn],
    free: Sequence[int],
    participants: Participants,
    run_s: float,
    notices: list[str],
) -> list[ChurnEvent]:
    """Return the events of the file's churn entries. Shares and clusters are taken from the `free` clients.

    notices: receives a line for each entry with some events after the end of the run, at `run_s`.

    Raises:
        UserError: all events of an entry are after the end of the run.
    """
    events: list[ChurnEvent] = []
    ordered = sorted(enumerate(entries), key=lambda item: (item[1].event != "join", item[1].at))
    named = {client for entry in entries for client in entry.clients or ()}
    for number, entry in ordered:
        clients = entry.clients
        if clients is None:
            pool = [client for client in free if not (entry.event == "join" and client in named)]
            clients = _chosen(number, entry, pool, events, participants)
        times = {clients: entry.at}
        if entry.spread:  # each client at a separate time
            draws = {each: RandomStream(participants.seed, "churn spread", number, each) for each in clients}
            times = {(each,): entry.at + entry.spread * stream.uniform() for each, stream in draws.items()}
        late = sum(time_s >= run_s for time_s in times.values())
        if late:
            spread = f'churn.{number}.spread = "{DURATION.format(entry.spread)}"'
            which, when = f"{late} of {len(times)} events", f"after the end of the run ({run_s:g} s)"
            if late == len(times):
                raise UserError(f"{spread}: all events are {when}; must be shorter")
            notices.append(f"{spread}: left out {which}, because of times {when}")
        for group, time_s in times.items():
            events.append(ChurnEvent(time_s, entry.event, group, entry.state, entry.backup_every))
    return sorted(events, key=lambda event: event.time_s)


def _chosen(
    number: int, entry: Churn, pool: Sequence[int], before: Sequence[ChurnEvent], participants: Participants
) -> tuple[int, ...]:
    """Return the clients of an entry that names a share or a cluster, in ascending order."""
    inside = frozenset[int]()
    if entry.cluster is not None:
        inside = frozenset(participants.in_cluster(entry.cluster, f"churn.{number}.cluster"))
    possible = eligible_clients(entry.event, entry.at, pool, before)
    if entry.cluster is not None:
        chosen = [client for client in possible if client in inside]
    else:
        assert entry.share is not None
        # Sort by a hash per client, so that each client's draw hardly depends on the other clients.
        ordered = sorted(possible, key=lambda client: key(participants.seed, "churn share", number, client))
        chosen = ordered[: round(entry.share * len(possible))]
    if not chosen:
        what = f"{entry.event} at {entry.at:g} s"
        if possible and entry.share is not None:
            raise UserError(
                f"churn.{number}.share = {entry.share:g}: selects no client, of {len(possible)} that can "
                f"{what}; must be larger"
            )
        who = "client" if entry.cluster is None else f"client of cluster {entry.cluster}"
        raise UserError(
            f"churn.{number}: no {who} can {what} (a client in a churn_process, or with a later event in "
            "churn, cannot be chosen)"
        )
    return tuple(sorted(chosen))


# --- processes ----------------------------------------------------------------------------------------------


def _pools(entries: Sequence[Churn], processes: Sequence[ChurnProcess], count: int) -> list[tuple[int, ...]]:
    """Return the clients of each process. Raises UserError for a client of two processes or entries."""
    all_clients = tuple(range(count))
    owner = {
        client: f"churn.{number}" for number, entry in enumerate(entries) for client in entry.clients or ()
    }
    pools = []
    for number, process in enumerate(processes):
        pool = tuple(dict.fromkeys(process.clients or all_clients))
        for client in pool:
            if client in owner:
                raise UserError(
                    f"churn_process.{number}.clients: client {client} is also in {owner[client]}; each "
                    "client may be in one churn_process, or in entries of churn, but not in both"
                )
            owner[client] = f"churn_process.{number}"
        pools.append(pool)
    return pools


def _process_events(
    number: int, process: ChurnProcess, pool: tuple[int, ...], participants: Participants, run_s: float | None
) -> AssignedSessions:
    """Return the events that a process generates for its clients, `pool`."""
    until_s = min([time_s for time_s in (process.until, run_s) if time_s is not None], default=None)
    if until_s is None:
        raise UserError(
            f"churn_process.{number}.until: is missing; without run.duration, the process has no end time: "
            "set until, or run.duration"
        )
    return process.play(number, pool, until_s, participants)
