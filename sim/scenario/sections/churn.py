"""Who joins, leaves, crashes and comes back: single events, and processes that make many."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings, default, exactly_one
from actors.settings.quantities import ClientList, CountOrZero, Duration, PositiveDuration
from actors.settings.units import DURATION
from sim.errors import UserError
from sim.kernel.random import RandomStream, key
from sim.scenario.sections.change import Change
from sim.world.churn.processes import ChurnProcess, Deal
from sim.world.churn.schedule import (
    ChurnEvent,
    State,
    absent_at_start,
    kept_up,
    possible_for,
    validate_schedule,
)
from sim.world.participants import Participants


class Churn(Settings):
    """One event in the life of some clients. A client whose first event is a join is absent at the start."""

    at: Duration
    """Virtual time of the event."""
    event: Literal["join", "leave", "crash", "rejoin"]
    """join: first appearance; leave: with goodbyes; crash: at once, in silence; rejoin: back after either."""
    clients: ClientList | None = None
    """The clients."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of those to whom it can happen then, drawn at random, instead of `clients`. Of a join these are
    the clients that no other entry names, no earlier join has drawn, and no process has in its pool."""
    cluster: CountOrZero | None = None
    """All clients of a true cluster to whom it can happen then, instead of `clients`."""
    spread: Duration = default("0 s")
    """Each client's event comes at a random time within so much after `at`."""
    state: State = "keep"
    """For a rejoin: with the state it had (keep), with the model of its last backup (stale), or as a newcomer
    (fresh)."""
    backup_every: PositiveDuration = default("1 min")
    """Time between two backups, for a stale rejoin; the same for all of one client."""

    @model_validator(mode="after")
    def _consistent(self) -> Churn:
        exactly_one(self, "clients", "share", "cluster")
        if self.state != "keep" and self.event != "rejoin":
            problem = f"only a rejoin can be {self.state}, this is a {self.event}"
            raise SettingError("state", self.state, problem)
        return self


@dataclass(frozen=True)
class ChurnSchedule:
    """All events of a run, who is not there at its start, and how many arrivals found no client.

    returns: by client of a process, with what it would come back, and the seconds between its backups: also
    if that is after the end of the run, which does not change what is before. staying: client and time
    (seconds) of those events that a change prevents. notices: what has less effect than stated, in words.
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
    """All joins, departures and returns in a run of so many seconds. UserError for impossible ones."""
    count = len(participants.clients)
    pools = _pools(entries, processes, count)
    deals = [
        _play(number, process, pool, participants, run_s)
        for number, (process, pool) in enumerate(zip(processes, pools, strict=True))
    ]
    taken = {client for pool in pools for client in pool}
    free = [client for client in range(count) if client not in taken]
    notices = list(_idle(deals))
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
        raise UserError("churn: every client comes later; at least one must be there from the start")
    returns = {
        client: (process.state, process.backup_every)
        for process, pool in zip(processes, pools, strict=True)
        for client in pool
    }
    turned_away = sum(found.turned_away for found in deals)
    staying = _prevented(changes, events)
    return ChurnSchedule(events, absent, turned_away, returns, staying, tuple(notices))


def _idle(deals: Sequence[Deal]) -> Iterator[str]:
    """A line for each process that does nothing in the run."""
    for number, found in enumerate(deals):
        if not found.events:
            yield f"churn_process.{number}: nobody comes or goes by it before the end of the run"


def _prevented(changes: Iterable[Change], events: Sequence[ChurnEvent]) -> frozenset[tuple[int, float]]:
    """(client, seconds) of departures that a change prevents, and of the returns that then do not happen.

    UserError for a change that prevents none.
    """
    kept: set[tuple[int, float]] = set()
    for number, change in enumerate(changes):
        if change.churn is not None:
            found = kept_up(events, change.at, change.churn.stay, change.churn.clients)
            if not found:
                until_s = change.at + change.churn.stay
                raise UserError(
                    f"change.{number}.churn: none of its clients leaves or crashes after {change.at:g} s and "
                    f"until {until_s:g} s"
                )
            kept |= found
    return frozenset(kept)


# --- single events ------------------------------------------------------------------------------------------


def _scheduled(
    entries: Sequence[Churn],
    free: Sequence[int],
    participants: Participants,
    run_s: float,
    notices: list[str],
) -> list[ChurnEvent]:
    """The events of the file's churn entries. Shares and clusters are taken from the `free` clients.

    notices: gets a line for each entry some of whose events come after the end of the run, at `run_s`.
    UserError for one all of whose events do.
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
        if entry.spread:  # each at a time of its own
            own = {each: RandomStream(participants.seed, "churn spread", number, each) for each in clients}
            times = {(each,): entry.at + entry.spread * stream.uniform() for each, stream in own.items()}
        late = sum(time_s >= run_s for time_s in times.values())
        if late:
            spread = f'churn.{number}.spread = "{DURATION.format(entry.spread)}"'
            problem = f"{late} of {len(times)} events come after the end of the run ({run_s:g} s)"
            if late == len(times):
                raise UserError(f"{spread}: {problem}; must be shorter")
            notices.append(f"{spread}: {problem}, and so never")
        for group, time_s in times.items():
            events.append(ChurnEvent(time_s, entry.event, group, entry.state, entry.backup_every))
    return sorted(events, key=lambda event: event.time_s)


def _chosen(
    number: int, entry: Churn, pool: Sequence[int], before: Sequence[ChurnEvent], participants: Participants
) -> tuple[int, ...]:
    """The clients of an entry that names a share or a cluster, in ascending order."""
    clusters = participants.clusters
    possible = possible_for(entry.event, entry.at, pool, before)
    if entry.cluster is not None:
        if clusters is None:
            raise UserError(f"churn.{number}.cluster = {entry.cluster}: the data have none; use clients")
        if entry.cluster not in clusters:
            last = max(clusters)
            raise UserError(f"churn.{number}.cluster = {entry.cluster}: must be a number from 0 to {last}")
        chosen = [client for client in possible if clusters[client] == entry.cluster]
    else:
        assert entry.share is not None
        # In the order of a hash of their own, so that who is among the first hardly depends on who else is.
        ordered = sorted(possible, key=lambda client: key(participants.seed, "churn share", number, client))
        chosen = ordered[: round(entry.share * len(possible))]
    if not chosen:
        raise UserError(
            f"churn.{number}: nobody can {entry.event} at {entry.at:g} s, or the share is below one"
        )
    return tuple(sorted(chosen))


# --- processes ----------------------------------------------------------------------------------------------


def _pools(entries: Sequence[Churn], processes: Sequence[ChurnProcess], count: int) -> list[tuple[int, ...]]:
    """The clients of each process; nobody may be in two, or have an event of its own."""
    everybody = tuple(range(count))
    owner = {
        client: f"churn.{number}" for number, entry in enumerate(entries) for client in entry.clients or ()
    }
    pools = []
    for number, process in enumerate(processes):
        pool = tuple(dict.fromkeys(process.clients or everybody))
        for client in pool:
            if client in owner:
                raise UserError(
                    f"churn_process.{number}.clients: client {client} is also one of {owner[client]}; state "
                    "pools without a common client, and leave them out of single events"
                )
            owner[client] = f"churn_process.{number}"
        pools.append(pool)
    return pools


def _play(
    number: int, process: ChurnProcess, pool: tuple[int, ...], participants: Participants, run_s: float | None
) -> Deal:
    """The events that a process makes for its pool of clients."""
    until_s = min([time_s for time_s in (process.until, run_s) if time_s is not None], default=None)
    if until_s is None:
        raise UserError(
            f"churn_process.{number}.until: missing; a run that ends by its iterations does not say how long "
            "the process goes on: state until, or run.duration"
        )
    return process.play(number, pool, until_s, participants)
