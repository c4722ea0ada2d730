"""Result directories of runs that never happened, of any size, for tests of the report."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl

from actors.message import Envelope
from sim.results.metrics import Metrics, accuracy_summary, graph_summary
from sim.results.store.manifest import Manifest
from sim.results.store.output_dir import MANIFEST
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import Trace

END_S = 600.0
LEAST = {
    "scenario": "demo",
    "protocol": "local",
    "seed": 3,
    "virtual_seconds": 0.0,
    "wall_seconds": 0.0,
    "trace_hash": "",
    "clients": {"initial": 1, "alive": 1},
    "client_names": ["client-0"],
    "accuracy": {"clients": 0, "mean": None},
    "better_than_alone": None,
    "graph": None,
    "messages": {},
    "engine": {
        "jobs": 0,
        "batches": 0,
        "mean_batch": 0.0,
        "seconds": 0.0,
        "updates": 0,
        "device": "cpu",
        "ways": [],
        "threads": 1,
        "memory": 0,
        "memory_per_client": 0.0,
    },
    "device_time": {},
}
"""A summary of a run in which nothing happened."""
SLOW = 3
BYTES_PER_S = 4.1e4  # of one client
SCENARIO = """\
# Does the <method> find who shares its labels while one client is slow, one comes late and one dies?
# It should, within five minutes.
[run]
seed = 1
duration = "10 min"
"""
# Of 12 clients or more: one joins late, one leaves, one crashes and comes back.
MOVES = [(120.0, 11, "join"), (300.0, 0, "crash"), (450.0, 5, "leave"), (480.0, 0, "rejoin")]
SPANS = {11: [(120.0, END_S)], 0: [(0.0, 300.0), (480.0, END_S)], 5: [(0.0, 450.0)]}


def write_run(
    folder: Path,
    *,
    clients: int = 12,
    clusters: int | None = 4,
    measure: str | None = "accuracy",
    graph: bool = True,
    reach: int | None = None,
    staleness: bool = True,
    observed: Mapping[str, Sequence[str]] = MappingProxyType({}),
    churn: bool = True,
    messages: bool = True,
    devices: bool = True,
    interrupted: bool = False,
    alone: bool = True,
    evaluations: int = 41,
    steps: int = 200,
    seed: int = 1,
) -> RunDirectory:
    """Ten minutes in which client 3 is slow; each client trains `steps` times.

    `seed` is stated, and changes the trace, but nothing that is measured.

    `observed`: by name, the actors that observe it, a number each time. `reach` limits the graph to clients
    with near numbers; the other arguments leave parts of a run out.
    """
    random = np.random.Generator(np.random.Philox(7))
    names = [f"client-{i}" for i in range(clients)]
    truth = [i * clusters // clients for i in range(clients)] if clusters else None
    moves = MOVES if churn and clients > 11 else []
    spans = [SPANS.get(i, [(0.0, END_S)]) if moves else [(0.0, END_S)] for i in range(clients)]
    metrics = Metrics()
    for time_s in np.linspace(0, END_S, evaluations).tolist():
        for i, name in enumerate(names):
            inside = [start for start, end in spans[i] if start <= time_s < end or time_s == end == END_S]
            if inside:
                _measure(metrics, time_s, i, name, measure, time_s - spans[i][0][0], random)
                if staleness and time_s > 0:
                    metrics.add(time_s, name, "staleness", float(random.gamma(2, 4 if i == SLOW else 1)))
        metrics.add(time_s, "all", "bytes_sent", BYTES_PER_S * time_s * clients * messages)
        for name, actors in observed.items():
            for place, actor in enumerate(actors if time_s > 0 else ()):
                metrics.add(time_s, actor, name, place + time_s / END_S)
        if graph:
            _weigh(metrics, time_s, truth, clients, reach or clients, random)
    for i, name in enumerate(names):
        metrics.add(END_S, name, "training_steps", steps / (5 if i == SLOW else 1))
    if alone and measure is not None:
        for name, level in metrics.latest(measure).items():
            metrics.add(END_S, name, f"{measure}_alone", level * float(random.uniform(0.8, 1.02)))
    run = RunDirectory.create(folder, "quickstart", seed, "9f3a1c20")
    run.write_scenario(SCENARIO.replace("seed = 1", f"seed = {seed}"))
    run.write_provenance({"coterie": "1.0"})
    trace = _lifecycle(names, spans, moves)
    trace.checksum(END_S, names[0], seed)
    summary = _summary(metrics, trace, names, truth, messages)
    stated = {"seed": seed, "interrupted": interrupted, "planned_seconds": END_S * (2 if interrupted else 1)}
    run.write_summary(summary | stated)
    run.write_metrics(metrics)
    run.write_events(trace)
    run.write_intervals(_training(names, spans, steps, random) if devices else [])
    return run


def _measure(
    metrics: Metrics,
    time_s: float,
    client: int,
    name: str,
    measure: str | None,
    age_s: float,
    random: np.random.Generator,
) -> None:
    learned = 1 - np.exp(-age_s / END_S * (2 if client == SLOW else 7))
    level = 0.1 + (0.82 - 0.02 * (client % 4)) * learned + random.normal(0, 0.012)
    if measure is not None:
        metrics.add(time_s, name, measure, float(level if measure == "accuracy" else 10 ** (1 - 4 * level)))
    metrics.add(time_s, name, "iterations", round(age_s if client == SLOW else 5 * age_s))


def _weigh(
    metrics: Metrics,
    time_s: float,
    truth: list[int] | None,
    clients: int,
    reach: int,
    random: np.random.Generator,
) -> None:
    pull = 1.1 * (1 - np.exp(-4 * time_s / END_S))
    for i in range(clients):
        for j in range(max(0, i - reach), min(clients, i + reach)):
            same = truth is not None and truth[i] == truth[j]
            weight = 0.5 + (same - 0.5) * pull + random.normal(0, 0.06)
            if i != j:
                metrics.graph(time_s, i, j, float(np.clip(weight, 0, 1)))


def _lifecycle(
    names: list[str], spans: list[list[tuple[float, float]]], moves: list[tuple[float, int, str]]
) -> Trace:
    trace = Trace()
    for name, ((start_s, _), *_) in zip(names, spans, strict=True):
        if start_s == 0:
            trace.lifecycle(0.0, name, "start")
    for time_s, client, event in moves:
        trace.lifecycle(time_s, names[client], event)
    return trace


def _training(
    names: list[str], spans: list[list[tuple[float, float]]], steps: int, random: np.random.Generator
) -> list[tuple[str, float, float, str]]:
    rows = []
    for i, name in enumerate(names):
        share = 1.0 if i == SLOW else random.uniform(0.35, 0.8)
        for start_s, end_s in spans[i]:
            starts, length = np.linspace(
                start_s, end_s, max(1, round(steps * (end_s - start_s) / END_S)), endpoint=False, retstep=True
            )
            rows += [(name, at, min(at + share * length, end_s), "busy") for at in starts.tolist()]
        edges = [0.0, *[edge for span in spans[i] for edge in span], END_S]
        gaps = zip(edges[::2], edges[1::2], strict=True)
        rows += [(name, start_s, end_s, "down") for start_s, end_s in gaps if start_s < end_s]
    return rows


def _summary(
    metrics: Metrics, trace: Trace, names: list[str], truth: list[int] | None, messages: bool
) -> dict[str, Any]:
    weights, accuracy = metrics.weights(), metrics.latest("accuracy")
    by_type = {"Model": [6_120, 249_000_000], "Gradient": [1_130, 45_900_000], "Hello": [70, 2_100]}
    counts = {
        "sent": 7_320,
        "delivered": 7_217,
        "lost": 55,
        "dropped": 41,
        "duplicated": 0,
        "in_flight": 7,
        "bytes": 294_902_100,
    }
    return {
        "scenario": "quickstart",
        "protocol": "cobo",
        "seed": 1,
        "virtual_seconds": END_S,
        "wall_seconds": 23.4,
        "trace_hash": trace.hash(),
        "clients": {"initial": len(names), "joined": 1, "left": 1, "crashed": 1, "alive": len(names) - 1},
        "accuracy": accuracy_summary(accuracy.values()),
        "better_than_alone": 11 / 12 if accuracy else None,
        "graph": graph_summary(weights, truth) if weights and truth else None,
        "messages": counts if messages else dict.fromkeys(counts, 0),
        "engine": {
            "jobs": 48_210,
            "batches": 1_204,
            "mean_batch": 40.0415,
            "seconds": 14.2,
            "updates": 48_210,
            "device": "cpu",
            "ways": ["dense"],
            "threads": 1,
            "memory": 3_000_000,
            "memory_per_client": 250_000.0,
        },
        "device_time": {"busy": 3_920.5, "waiting": 2_850.25, "down": 429.25},
        "bytes_by_type": by_type if messages else {},
        "failures": [],
        "clusters": truth,
        "client_names": names,
    }


def as_if_written(folder: Path) -> None:
    """Have results whose files a test has changed be taken for what a run wrote."""
    Manifest.of(folder, json.loads((folder / MANIFEST).read_text())).write()


def with_messages(run: RunDirectory) -> Trace:
    """A run's lifecycle, and a message to each client at the very instant at which it begins to train."""
    events, intervals = run.scan("events").collect(), run.scan("intervals").collect()
    names = run.summary()["client_names"]
    rows = [(row["time"], row["actor"], row["event"]) for row in events.iter_rows(named=True)]
    starts = intervals.filter(pl.col("state") == "busy").select("start", "actor").rows()
    rows += [(start_s, name, "delivered") for start_s, name in starts]
    trace = Trace()
    for number, (time_s, name, event) in enumerate(sorted(rows), start=1):
        if event == "delivered":
            sender = names[(names.index(name) + 1 + number % (len(names) - 1)) % len(names)]
            envelope = Envelope(sender, name, None)
            trace.message("sent", time_s, envelope, "Model", 1000, number=number)
            trace.message("delivered", time_s, envelope, "Model", 1000, number=number)
        elif event != "checksum":
            trace.lifecycle(time_s, name, event)
    return trace


def seconds_within(intervals: pl.DataFrame, actor: str, state: str, low_s: float, high_s: float) -> float:
    """Seconds between two times that a device was in a state, by the rows of intervals.parquet."""
    rows = intervals.filter((pl.col("actor") == actor) & (pl.col("state") == state))
    lengths = rows["end"].clip(upper_bound=high_s) - rows["start"].clip(lower_bound=low_s)
    return float(lengths.clip(lower_bound=0).sum())
