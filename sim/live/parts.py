"""Results of a live run's processes, read from their records and merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from actors.supervisor import Failure
from sim.core.divergence import NonFinite
from sim.core.lives import ClientLife, Life
from sim.core.simulation import Simulation
from sim.live.logs import logs_in, records
from sim.live.placement import COORDINATOR
from sim.results.metrics import ALL, METRICS_SCHEMA
from sim.results.trace import EVENTS_SCHEMA, LIFECYCLE_EVENTS, MESSAGE_EVENTS, Trace
from sim.world.timeline import State

_EVENTS = pl.DataFrame(pl.from_arrow(EVENTS_SCHEMA.empty_table())).schema
_SHARED = ("actor", "peer", "type", "bytes", "message")
"""Columns with the same value in all events of a message; the other columns describe one event."""
_METRICS = pl.DataFrame(pl.from_arrow(METRICS_SCHEMA.empty_table())).schema
_NO_SENSE = (ArithmeticError, LookupError, TypeError, ValueError, OSError, pl.exceptions.PolarsError)
_ARRIVALS = ("start", "join", "rejoin", "restarted")
_UNTOLD: dict[str, Any] = {
    "now_s": 0.0,
    "overflows": 0,
    "diverged": None,
    "diverging": [],
    "models": [],
    "models_changed": None,
    "engine": {},
    "live": {},
}
"""Default facts, for a process that ended before it recorded any."""


@dataclass(frozen=True)
class ProcessResults:
    """Records of one process. metrics, events: with the columns of a run's tables.

    facts: see `facts_of`. lives: facts of each client and server. lists: by name.
    """

    process: str
    facts: Mapping[str, Any]
    lives: Mapping[str, Mapping[str, Any]]
    lists: Mapping[str, Sequence[Any]]
    metrics: pl.DataFrame
    events: pl.DataFrame

    @classmethod
    def read(cls, process: str, log: Path) -> ProcessResults:
        """Read the log of a process, up to the last whole record. Raises ValueError for an invalid log."""
        trace = Trace()
        facts, lives, lists = dict(_UNTOLD), dict[str, Any](), dict[str, list[Any]]()
        try:
            for kind, *content in records(log):
                if kind == "event":
                    trace.record(tuple(content))
                elif kind == "rows":
                    name, start, rows = content
                    lists.setdefault(name, [])[start:] = rows
                elif kind == "life":
                    lives[content[0]] = content[1]
                elif kind == "facts":
                    facts |= content[0]
            measured = [_complete_row(row, _METRICS) for row in lists.pop("metrics", [])]
            metrics = pl.DataFrame(measured, _METRICS, orient="row")
            events = pl.DataFrame(pl.from_arrow(trace.to_table()))
        except _NO_SENSE as error:
            raise ValueError(f"the log of {process} is invalid: {error}") from error
        return cls(process, facts, lives, lists, metrics, events)

    def of_life(self, name: str) -> dict[str, Any] | None:
        """Return the facts of a client or a server with its lists; None if this process has no such actor."""
        facts = self.lives.get(name)
        if facts is None or "work" not in facts:
            return None if facts is None else dict(facts)
        work = facts["work"] | {"taken": self.lists.get(f"taken {name}", [])}
        device = facts["device"] | {"intervals": self.lists.get(f"intervals {name}", [])}
        return dict(facts) | {"work": work, "device": device}


@dataclass(frozen=True)
class Outcome:
    """Results of a live run, including processes that ended early.

    parts: the records of each process. crashes: times (seconds) and actors of killed processes. lost: lines
    about processes that exited unexpectedly, with their output. processes: the actors of each process.
    interrupted: True if the run was ended early.
    """

    parts: Sequence[ProcessResults]
    crashes: Sequence[tuple[float, str]]
    lost: Sequence[str]
    processes: Mapping[str, Sequence[str]]
    raw: bool
    interrupted: bool

    @classmethod
    def read(cls, folder: Path) -> Outcome:
        """Read the logs in the folder of a run."""
        parts: list[ProcessResults] = []
        crashes, lost = list[tuple[float, str]](), list[str]()
        run: dict[str, Any] = {"processes": {}, "raw": False}
        interrupted = False
        for process, log in logs_in(folder):
            if process == COORDINATOR:
                for kind, *content in records(log):
                    if kind == "run":
                        run |= content[0]
                    elif kind == "crash":
                        crashes.append((content[0], content[1]))
                    elif kind == "lost":
                        lost.append(content[0])
                    elif kind == "interrupted":
                        interrupted = True
                continue
            try:
                parts.append(ProcessResults.read(process, log))
            except ValueError as error:
                lost.append(str(error))
        return cls(parts, crashes, lost, run["processes"], run["raw"], interrupted)

    @property
    def ended_s(self) -> float:
        """Time of the last recorded event, in seconds of the run."""
        times_s = [part.facts["now_s"] for part in self.parts]
        times_s += [float(part.events["time"].max() or 0.0) for part in self.parts]  # type: ignore[arg-type]
        return max([0.0, *times_s, *[at_s for at_s, _ in self.crashes]])


@dataclass(frozen=True)
class MergedEvents:
    """Merged events. events: all events of the run, in order. in_flight: messages without an outcome.

    untold: messages whose sending only the receiver's process recorded. twice: outcomes that contradict
    another outcome. settled: messages whose outcome is the crash of their process.
    """

    events: pl.DataFrame
    in_flight: int
    untold: int
    twice: int
    settled: int


def merge(simulation: Simulation, outcome: Outcome) -> MergedEvents:
    """Copy the results of the processes into a simulation that has not run."""
    duration_s = simulation.rules.duration_s
    assert duration_s is not None
    simulation.loop.now_s = min(duration_s, outcome.ended_s)
    simulation.observer.by_name = {client.name: client for client in simulation.clients}
    merged = _merge_events(outcome, [server.name for server in simulation.servers])
    for row in merged.events.iter_rows(named=True):
        simulation.trace.add_row(**row)
    _count_moves_and_messages(simulation, merged.events)
    _merge_metrics(simulation, outcome.parts)
    for part in outcome.parts:
        _add_facts(simulation, part)
    for life in simulation.lives:
        found = [part.of_life(life.name) for part in outcome.parts]
        _restore_actor_state(life, [facts for facts in found if facts is not None])
    last = _last_events(merged.events)
    for life in simulation.lives:
        if life.name in last:
            life.up = last[life.name] in _ARRIVALS
    return merged


def _merge_events(outcome: Outcome, servers: Sequence[str]) -> MergedEvents:
    """Merge the events in the order of their times, each message with one sending and at most one outcome.

    A process numbers the messages that its actors send; the receiver's records use the same numbers.
    """
    rows = pl.concat([_EVENTS.to_frame(), *[part.events for part in outcome.parts]]).sort(
        "time", maintain_order=True
    )
    rows = pl.concat([rows, _crashes(rows, outcome.crashes, servers)]).sort("time", maintain_order=True)
    of_message = pl.struct("actor", "message").rank("dense").cast(pl.Int64)
    rows = rows.with_columns(message=pl.when(pl.col("message").is_not_null()).then(of_message))
    rows = rows.with_row_index("place")
    ends = rows.filter(pl.col("event").is_in([event for event in MESSAGE_EVENTS if event != "sent"]))
    # The receiver knows that a message arrived; the sender may only know that the connection was cut.
    kept = ends.sort(pl.col("event") != "delivered", "place").unique("message", keep="first")
    contradicted = ends.join(kept, on="place", how="anti")
    rows = rows.join(contradicted, on="place", how="anti")
    sent = rows.filter(pl.col("event") == "sent")
    untold = _unrecorded_events(
        kept.join(sent, on="message", how="anti"), time=pl.col("time"), event=pl.lit("sent")
    )
    open_ones = sent.join(kept, on="message", how="anti")
    settled = _ended_by_crashes(open_ones, rows.filter(pl.col("event") == "crash"))
    rows = pl.concat([untold, rows, settled]).sort("time", "place", maintain_order=True).drop("place")
    in_flight = open_ones.height - settled.height
    return MergedEvents(rows, in_flight, untold.height, contradicted.height, settled.height)


def _crashes(
    rows: pl.DataFrame, crashes: Sequence[tuple[float, str]], servers: Sequence[str]
) -> pl.DataFrame:
    """Return the crashes of actors that were up when their process ended, as rows of events."""
    found = []
    for at_s, who in crashes:
        before = _last_events(rows.filter(pl.col("actor") == who, pl.col("time") <= at_s)).get(who)
        if before in _ARRIVALS or (before is None and who in servers):  # servers have no start event
            found.append({"time": at_s, "event": "crash", "actor": who})
    columns = [pl.Series(name, [row.get(name) for row in found], kind) for name, kind in _EVENTS.items()]
    return pl.DataFrame(columns)


def _complete_row(row: Sequence[Any], columns: pl.Schema) -> Sequence[Any]:
    """Return a row with a value for each column. Raises ValueError for other rows: polars would fill them."""
    if len(row) != len(columns):
        raise ValueError(f"a row has {len(row)} values, but its table has the columns {', '.join(columns)}")
    return row


def _last_events(rows: pl.DataFrame) -> dict[str, str]:
    """Return the last lifecycle event of each client."""
    lives = rows.filter(pl.col("event").is_in(LIFECYCLE_EVENTS))
    return dict(lives.group_by("actor").agg(pl.col("event").last()).iter_rows())


def _unrecorded_events(messages: pl.DataFrame, **stated: pl.Expr) -> pl.DataFrame:
    """Return events that no process recorded, from the recorded events of the same messages.

    stated: values of columns that are not in `_SHARED`; the others are null.
    """
    own = {name: pl.lit(None, kind) for name, kind in _EVENTS.items() if name not in _SHARED}
    return messages.with_columns(**own | stated)


def _ended_by_crashes(messages: pl.DataFrame, crashes: pl.DataFrame) -> pl.DataFrame:
    """Return the outcomes of messages that have none, from a later crash of their sender or receiver."""
    found = []
    for who, why in (("peer", "down"), ("actor", "sender crashed")):
        times = crashes.select(pl.col("actor").alias(who), crash="time")
        hit = messages.join(times, on=who).filter(pl.col("crash") >= pl.col("time"))
        ends = _unrecorded_events(hit, time=pl.col("crash"), event=pl.lit("dropped"), detail=pl.lit(why))
        found.append(ends.select(messages.columns))
    return (
        pl.concat(found)
        .sort("time", "place", maintain_order=True)
        .unique("message", keep="first", maintain_order=True)
    )


def _merge_metrics(simulation: Simulation, parts: Sequence[ProcessResults]) -> None:
    """Merge the metrics, and sum the totals of all processes."""
    metrics = simulation.observer.metrics
    rows = pl.concat([_METRICS.to_frame(), *[part.metrics for part in parts]])
    rows = rows.with_columns(order=pl.int_range(pl.len()))
    totals = rows.filter(pl.col("actor") == ALL).group_by("time", "actor", "name", maintain_order=True)
    summed = totals.agg(pl.col("value").sum(), pl.col("order").max())
    rows = pl.concat([rows.filter(pl.col("actor") != ALL), summed.select(rows.columns)])
    for time_s, actor, name, value, _ in rows.sort("time", "order").iter_rows():
        metrics.add(time_s, actor, name, value)
    graph = [row for part in parts for row in part.lists.get("graph", ()) if row[3]]
    for time_s, source, target, weight in sorted(graph, key=lambda row: row[0]):
        metrics.graph(time_s, source, target, weight)
    coalitions = [tuple(row) for part in parts for row in part.lists.get("coalitions", ())]
    metrics.add_coalitions(sorted(coalitions, key=lambda row: row[0]))


def _restore_actor_state(life: Life[Any], found: Sequence[Mapping[str, Any]]) -> None:
    """Restore the final state of an actor from the records of its processes."""
    for facts in found:
        life.up = facts["up"]
        waits, in_vain = life.former_waits
        life.former_waits = (waits + facts["waits"][0], in_vain + facts["waits"][1])
    if isinstance(life, ClientLife) and found and "iterations" in found[-1]:
        actor = life.fresh()
        actor.iterations = found[-1]["iterations"]
        life.replace_actor(actor)
    if life.compute is not None:
        if found:
            life.compute.recall(found[-1]["work"])
        busy_s, waiting_s = (sum(facts["device"][key] for facts in found) for key in ("busy_s", "waiting_s"))
        intervals = _concatenate_intervals([each for facts in found for each in facts["device"]["intervals"]])
        life.compute.device.recall(busy_s, waiting_s, intervals)


def _concatenate_intervals(intervals: Sequence[Any]) -> list[tuple[float, float, State]]:
    """Concatenate the intervals of successive processes without overlaps."""
    found: list[tuple[float, float, State]] = []
    for start_s, end_s, state in intervals:
        start_s = max(start_s, found[-1][1] if found else 0.0)
        if start_s < end_s:
            found.append((start_s, end_s, state))
    return found


def _count_moves_and_messages(simulation: Simulation, events: pl.DataFrame) -> None:
    """Count messages, joins and departures by their events."""
    counts, messages = simulation.network.counts, events.filter(pl.col("event").is_in(MESSAGE_EVENTS))
    number_of = Counter(messages["event"].to_list())
    for event in MESSAGE_EVENTS:
        setattr(counts, event, number_of[event])
    sent = messages.filter(pl.col("event") == "sent")
    by_type = sent.group_by("type", maintain_order=True).agg(pl.len(), pl.col("bytes").sum())
    counts.by_type = {kind: [number, length] for kind, number, length in by_type.iter_rows()}
    is_copy = pl.col("detail").eq_missing("duplicate")
    counts.duplicated = sent.filter(is_copy).height
    by_sender = sent.filter(~is_copy).group_by("actor", maintain_order=True).agg(pl.col("bytes").sum())
    simulation.network.bytes_sent.update(by_sender.iter_rows())
    counts.reasons = dict(Counter(messages.filter(pl.col("event").is_in(("lost", "dropped")))["detail"]))
    clients = events.filter(pl.col("actor").is_in([client.name for client in simulation.clients]))
    came = Counter(clients["event"].to_list())
    names = {"join": "joined", "leave": "left", "crash": "crashed", "rejoin": "rejoined"}
    for event, name in (names | {"failed": "failed", "restarted": "restarted"}).items():
        setattr(simulation.churn, name, came[event])


def _add_facts(simulation: Simulation, part: ProcessResults) -> None:
    observer, found = simulation.observer, part.facts
    observer.models |= dict.fromkeys(found["models"])
    observer.divergence.present |= dict.fromkeys(found["diverging"])
    if found["diverged"] is not None:
        first, before = NonFinite(**found["diverged"]), observer.divergence.first
        if before is None or first.time_s < before.time_s:
            observer.divergence.first = first
    if found["models_changed"] is not None:
        observer.models_changed = bool(observer.models_changed) or found["models_changed"]
    simulation.supervisor.failures += [Failure(**failure) for failure in part.lists.get("failures", ())]
    statistics = simulation.engine.statistics
    for name in ("jobs", "batches", "seconds", "updates"):
        setattr(statistics, name, getattr(statistics, name) + found["engine"].get(name, 0))
