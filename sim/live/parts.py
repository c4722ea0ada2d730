"""The results of one process of a live run, on their way to the coordinator, which puts all together."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from actors.message import Envelope
from actors.status import ActorStatus
from actors.supervisor import Failure
from sim.live.control import Ended
from sim.results.metrics import ALL
from sim.results.trace import LIFECYCLE_EVENTS, MESSAGE_EVENTS, Trace
from sim.run.live.lives import ClientLife, Life
from sim.run.live.simulation import Simulation
from sim.run.measure.divergence import NonFinite
from sim.world.timeline import State


@dataclass(frozen=True)
class ProcessResults:
    """What one process found. facts: see `facts_of`. metrics, events: with the columns of a run's tables."""

    process: str
    facts: Mapping[str, Any]
    metrics: pl.DataFrame
    events: pl.DataFrame

    @classmethod
    def of(cls, process: str, told: Ended) -> ProcessResults:
        """From what a process has told; ValueError where that cannot be read."""
        try:
            tables = [pl.from_arrow(_table(each)) for each in (told.metrics, told.events)]
        except pa.ArrowException as error:
            raise ValueError(f"{process} has told no tables: {error}") from error
        return cls(process, json.loads(told.facts), *map(pl.DataFrame, tables))


def told(
    simulation: Simulation,
    names: Collection[str],
    live: Mapping[str, Any],
    *,
    is_last: bool,
    with_models: bool = False,
) -> Ended:
    """The results of these clients and servers, which are of this process; with their models, if wanted."""
    facts = facts_of(simulation, names)
    for own in facts["lives"] if with_models else ():
        life = next(life for life in simulation.lives if life.name == own["name"])
        model = life.params if isinstance(life, ClientLife) and life.up and life.actor is not None else None
        own["model"] = None if model is None else b64encode(model.numpy().tobytes()).decode()
    said = json.dumps(facts | {"live": live}).encode()
    metrics = _bytes(simulation.observer.metrics.to_table())
    return Ended(is_last, said, metrics, _bytes(simulation.trace.to_table()))


def facts_of(simulation: Simulation, names: Collection[str]) -> dict[str, Any]:
    """All that a summary needs of this process's actors, who have these names, beside the tables."""
    observer, engine = simulation.observer, simulation.engine
    first = observer.divergence.first
    return {
        "lives": [_of_life(life) for life in simulation.lives if life.name in names],
        "counts": asdict(simulation.network.counts),
        "bytes_sent": dict(simulation.network.bytes_sent),
        "failures": [asdict(failure) for failure in simulation.supervisor.failures],
        "churn": vars(simulation.churn),
        "overflows": sum(ActorStatus(actor).overflows for actor in simulation.supervisor.running.values()),
        "graph": [row for row in observer.metrics.graph_rows() if row[3]],
        "coalitions": observer.metrics.coalition_rows(),
        "diverged": None if first is None else asdict(first),
        "diverging": list(observer.divergence.present),
        "models": list(observer.models),
        "models_changed": observer.models_changed,
        "engine": asdict(engine.statistics) | {"bytes_held": engine.bytes_held, "ways": engine.backends},
    }


def _of_life(life: Life[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": life.name, "up": life.up, "waits": life.waits}
    if isinstance(life, ClientLife) and life.actor is not None:
        found["iterations"] = life.iterations
    if (compute := life.compute) is not None:
        device = compute.device
        own = {"busy_s": device.busy_s, "waiting_s": device.waiting_s, "intervals": device.intervals()}
        found |= {"device": own, "work": compute.recorded()}
    return found


def merge(
    simulation: Simulation, parts: Sequence[ProcessResults], crashes: Sequence[tuple[float, str]]
) -> pl.DataFrame:
    """Fill a simulation that has not run with what its processes found, as if it had; all events, in order.

    parts: one of each life of a process, in the order of their ends. crashes: when (seconds) the coordinator
    has ended whom.
    """
    duration_s = simulation.scenario.run.duration
    assert duration_s is not None
    simulation.loop.now_s = duration_s
    simulation.observer.by_name = {client.name: client for client in simulation.clients}
    events = _merge_events(simulation.trace, parts, crashes)
    _merge_metrics(simulation, parts)
    found: dict[str, list[Mapping[str, Any]]] = {}
    for part in parts:
        for facts in part.facts["lives"]:
            found.setdefault(facts["name"], []).append(facts)
        _add_counts(simulation, part.facts)
    for life in simulation.lives:
        _fill(life, found.get(life.name, []))
    simulation.churn.crashed += len(crashes)
    for client in simulation.clients:
        last = [event for _, actor, event, _ in simulation.trace.lifecycles if actor == client.name][-1:]
        client.up = client.up and last != ["crash"]
    return events


def _merge_events(
    trace: Trace, parts: Sequence[ProcessResults], crashes: Sequence[tuple[float, str]]
) -> pl.DataFrame:
    """The events of all, in the order of their times.

    A process numbers the messages that its actors send, and whoever receives one knows it by that number.
    """
    rows = pl.concat([part.events for part in parts]) if parts else pl.DataFrame()
    columns = {"time": pl.Float64, "event": pl.String, "actor": pl.String}
    crashed = pl.DataFrame([(at, "crash", who) for at, who in crashes], columns, orient="row")
    rows = pl.concat([rows, crashed], how="diagonal").sort("time", maintain_order=True)
    of_message = pl.struct("actor", "message").rank("dense")
    rows = rows.with_columns(message=pl.when(pl.col("message").is_not_null()).then(of_message))
    for row in rows.iter_rows(named=True):
        _record(trace, row)
    return rows


def _record(trace: Trace, row: Mapping[str, Any]) -> None:
    event, detail = row["event"], row["detail"] or ""
    if event in MESSAGE_EVENTS:
        envelope = Envelope(row["actor"], row["peer"], None)
        trace.message(event, row["time"], envelope, row["type"], row["bytes"], detail, row["message"])
    elif event in LIFECYCLE_EVENTS:
        trace.lifecycle(row["time"], row["actor"], event, detail)
    else:
        trace.checksum(row["time"], row["actor"], int(detail, 16))


def _merge_metrics(simulation: Simulation, parts: Sequence[ProcessResults]) -> None:
    """The measurements of all; what each process counts of its own actors is added up."""
    observer, metrics = simulation.observer, simulation.observer.metrics
    rows = pl.concat([part.metrics for part in parts]).with_columns(order=pl.int_range(pl.len()))
    totals = rows.filter(pl.col("actor") == ALL).group_by("time", "actor", "name", maintain_order=True)
    summed = totals.agg(pl.col("value").sum(), pl.col("order").max())
    rows = pl.concat([rows.filter(pl.col("actor") != ALL), summed.select(rows.columns)])
    for time_s, actor, name, value, _ in rows.sort("time", "order").iter_rows():
        metrics.add(time_s, actor, name, value)
    graph = [row for part in parts for row in part.facts["graph"]]
    for time_s, source, target, weight in sorted(graph, key=lambda row: row[0]):
        metrics.graph(time_s, source, target, weight)
    coalitions = [tuple(row) for part in parts for row in part.facts["coalitions"]]
    metrics.add_coalitions(sorted(coalitions, key=lambda row: row[0]))
    for part in parts:
        found = part.facts
        observer.models |= dict.fromkeys(found["models"])
        observer.divergence.present |= dict.fromkeys(found["diverging"])
        if found["diverged"] is not None:
            first, before = NonFinite(**found["diverged"]), observer.divergence.first
            if before is None or first.time_s < before.time_s:
                observer.divergence.first = first
        if found["models_changed"] is not None:
            observer.models_changed = bool(observer.models_changed) or found["models_changed"]


def _fill(life: Life[Any], found: Sequence[Mapping[str, Any]]) -> None:
    """One actor as it was at the end, from what each of its processes said of it."""
    for facts in found:
        life.up = facts["up"]
        waits, in_vain = life.former_waits
        life.former_waits = (waits + facts["waits"][0], in_vain + facts["waits"][1])
    if isinstance(life, ClientLife) and found and "iterations" in found[-1]:
        actor = life.fresh()
        actor.iterations = found[-1]["iterations"]
        life.go_on_with(actor)
    if life.compute is not None:
        if found:
            life.compute.recall(found[-1]["work"])
        busy_s, waiting_s = (sum(facts["device"][key] for facts in found) for key in ("busy_s", "waiting_s"))
        intervals = _one_after_the_other([each for facts in found for each in facts["device"]["intervals"]])
        life.compute.device.recall(busy_s, waiting_s, intervals)


def _one_after_the_other(intervals: Sequence[Any]) -> list[tuple[float, float, State]]:
    """Of a later process only what came after the one before: until then its device was down here."""
    found: list[tuple[float, float, State]] = []
    for start_s, end_s, state in intervals:
        start_s = max(start_s, found[-1][1] if found else 0.0)
        if start_s < end_s:
            found.append((start_s, end_s, state))
    return found


def _add_counts(simulation: Simulation, facts: Mapping[str, Any]) -> None:
    counts, found = simulation.network.counts, facts["counts"]
    for name in ("sent", "delivered", "lost", "dropped", "duplicated"):
        setattr(counts, name, getattr(counts, name) + found[name])
    for kind, (number, length) in found["by_type"].items():
        of_type = counts.by_type.setdefault(kind, [0, 0])
        of_type[0] += number
        of_type[1] += length
    for reason, number in found["reasons"].items():
        counts.reasons[reason] = counts.reasons.get(reason, 0) + number
    for name, length in facts["bytes_sent"].items():
        simulation.network.bytes_sent[name] += length
    simulation.supervisor.failures += [Failure(**failure) for failure in facts["failures"]]
    for name, number in facts["churn"].items():
        if name != "turned_away":
            setattr(simulation.churn, name, getattr(simulation.churn, name) + number)
    statistics = simulation.engine.statistics
    for name in ("jobs", "batches", "seconds", "updates"):
        setattr(statistics, name, getattr(statistics, name) + facts["engine"][name])


def _bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _table(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()
