"""Who joins, leaves, crashes and comes back, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from sim.build.traces import spot_sessions
from sim.errors import UserError
from sim.scenario import Scenario
from sim.settings.churn import (
    Churn,
    ChurnProcess,
    DiurnalChurn,
    ExponentialLength,
    LogNormalLength,
    PoissonChurn,
    TraceChurn,
    WeibullLength,
)
from sim.world.churn import ChurnEvent, ImpossibleEvent, absent_at_start, possible_for, validate_schedule
from sim.world.churn_processes import (
    Deal,
    Session,
    deal,
    diurnal_factor,
    poisson_sessions,
)
from sim.world.distributions import Distribution, LogNormal, Weibull
from sim.world.random import Draws, key


@dataclass(frozen=True)
class ChurnSchedule:
    """All events of a run, who is not there at its start, and how many arrivals found no client."""

    events: list[ChurnEvent]
    absent: tuple[int, ...]
    turned_away: int


def churn_schedule(
    scenario: Scenario, clusters: Sequence[int] | None, data_dir: Path | None
) -> ChurnSchedule:
    """Everybody's comings and goings. Raises UserError for what cannot happen."""
    count = scenario.clients.count
    pools = _pools(scenario)
    deals = [
        _play(scenario, number, process, pool, data_dir)
        for number, (process, pool) in enumerate(zip(scenario.churn_process, pools, strict=True))
    ]
    taken = {client for pool in pools for client in pool}
    free = [client for client in range(count) if client not in taken]
    events = _scheduled(scenario, free, clusters)
    for found in deals:
        events += found.events
    try:
        validate_schedule(events, count)
    except ImpossibleEvent as error:
        raise UserError(f"churn: {error.problem}") from None
    unused = {client for found in deals for client in found.unused}
    absent = tuple(sorted({*absent_at_start(events), *unused}))
    if len(absent) == count:
        raise UserError("churn: every client comes later; at least one must be there from the start")
    return ChurnSchedule(events, absent, sum(found.turned_away for found in deals))


# --- single events ------------------------------------------------------------------------------------------


def _scheduled(scenario: Scenario, free: Sequence[int], clusters: Sequence[int] | None) -> list[ChurnEvent]:
    """The events of the file's churn entries. Shares and clusters are taken from the `free` clients."""
    events: list[ChurnEvent] = []
    entries = sorted(enumerate(scenario.churn), key=lambda item: (item[1].event != "join", item[1].at))
    named = {client for entry in scenario.churn for client in entry.clients or ()}
    for number, entry in entries:
        clients = entry.clients
        if clients is None:
            pool = [client for client in free if not (entry.event == "join" and client in named)]
            clients = _chosen(scenario.run.seed, number, entry, pool, events, clusters)
        for group, time_s in _times(scenario.run.seed, number, entry, clients):
            events.append(ChurnEvent(time_s, entry.event, group, entry.state, entry.backup_every))
    order = {id(event): place for place, event in enumerate(events)}
    return sorted(events, key=lambda event: (event.time_s, order[id(event)]))


def _chosen(
    seed: int,
    number: int,
    entry: Churn,
    pool: Sequence[int],
    before: Sequence[ChurnEvent],
    clusters: Sequence[int] | None,
) -> tuple[int, ...]:
    """The clients of an entry that names a share or a cluster, in ascending order."""
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
        ordered = sorted(possible, key=lambda client: key(seed, "churn share", number, client))
        chosen = ordered[: round(entry.share * len(possible))]
    if not chosen:
        raise UserError(
            f"churn.{number}: nobody can {entry.event} at {entry.at:g} s, or the share is below one"
        )
    return tuple(sorted(chosen))


def _times(
    seed: int, number: int, entry: Churn, clients: tuple[int, ...]
) -> Iterable[tuple[tuple[int, ...], float]]:
    """The clients of an entry by the time of their event: all at once, or each at its own."""
    if not entry.spread:
        return [(clients, entry.at)]
    draw = {client: Draws(seed, "churn spread", number, client).uniform() for client in clients}
    return [((client,), entry.at + entry.spread * draw[client]) for client in clients]


# --- processes ----------------------------------------------------------------------------------------------


def _pools(scenario: Scenario) -> list[tuple[int, ...]]:
    """The clients of each process; nobody may be in two, or have an event of its own."""
    everybody = tuple(range(scenario.clients.count))
    owner = {
        client: f"churn.{number}"
        for number, entry in enumerate(scenario.churn)
        for client in entry.clients or ()
    }
    pools = []
    for number, process in enumerate(scenario.churn_process):
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
    scenario: Scenario, number: int, process: ChurnProcess, pool: tuple[int, ...], data_dir: Path | None
) -> Deal:
    """One process, played with its pool."""
    duration_s = scenario.run.duration
    until_s = min([time_s for time_s in (process.until, duration_s) if time_s is not None], default=None)
    if until_s is None:
        raise UserError(
            f"churn_process.{number}.until: missing; a run that ends by its iterations does not say how long "
            "the process goes on: state until, or run.duration"
        )
    match process:
        case TraceChurn():
            sessions = _measured(number, process, data_dir)
        case PoissonChurn():
            sessions = _drawn(scenario.run.seed, number, process, pool, until_s)
        case _:
            assert_never(process)
    return deal(sessions, pool, until_s, process.end, process.state, process.backup_every)


def _drawn(
    seed: int, number: int, process: PoissonChurn, pool: Sequence[int], until_s: float
) -> list[Session]:
    length = _length(process.session)
    diurnal = isinstance(process, DiurnalChurn)
    factor = diurnal_factor(process.period, process.amplitude) if isinstance(process, DiurnalChurn) else None
    first = Draws(seed, "churn", number, "first sessions")
    # Whole sessions, not what is left of older ones: all of them have just come.
    present = [(0.0, length.sample(first)) for _ in range(round(process.up_at_start * len(pool)))]
    arrivals = poisson_sessions(
        process.every,
        length,
        until_s,
        Draws(seed, "churn", number, "arrivals"),
        Draws(seed, "churn", number, "sessions"),
        rate_factor=factor or (lambda _: 1.0),
        rate_factor_max=1.0 + process.amplitude if diurnal else 1.0,  # type: ignore[attr-defined]
    )
    return [*present, *arrivals]


def _length(settings: ExponentialLength | WeibullLength | LogNormalLength) -> Distribution:
    match settings:
        case ExponentialLength(mean=mean):
            return Weibull(mean)
        case WeibullLength(scale=scale, shape=shape):
            return Weibull(scale, shape)
        case LogNormalLength(median=median, sigma=sigma):
            return LogNormal(median, sigma)


def _measured(number: int, process: TraceChurn, data_dir: Path | None) -> list[Session]:
    key = f'churn_process.{number}.source = "{process.source}"'
    faster = process.speedup
    return [
        (start_s / faster, end_s / faster) for start_s, end_s in spot_sessions(process.source, key, data_dir)
    ]
