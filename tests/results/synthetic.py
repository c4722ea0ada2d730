"""Result directories of runs that never happened, of any size, for tests of the report."""

from pathlib import Path

import numpy as np

from sim.results.metrics import Metrics, accuracy_summary, graph_summary
from sim.results.store import RunDirectory
from sim.results.trace import Trace

SCENARIO = """\
# Does the <method> find who shares its labels while one client is slow, one comes late and one dies?
# It should, within five minutes.
[run]
seed = 1
duration = "10 min"
"""


def write_run(
    folder: Path,
    *,
    clients: int = 12,
    clusters: int | None = 4,
    measure: str | None = "accuracy",
    graph: bool = True,
    reach: int | None = None,
    staleness: bool = True,
    churn: bool = True,
    messages: bool = True,
    devices: bool = True,
    interrupted: bool = False,
    end_s: float = 600.0,
    evaluations: int = 41,
    steps: int = 200,
) -> RunDirectory:
    """A finished run in which client 3 is slow; of 12, client 11 joins late, 0 crashes and returns, 5 leaves.

    `evaluations` are spread over `end_s` virtual seconds; each client trains for `steps` intervals.
    `reach` limits the graph to clients with near numbers.
    """
    random = np.random.Generator(np.random.Philox(7))
    names = [f"client-{i}" for i in range(clients)]
    truth = [i * clusters // clients for i in range(clients)] if clusters else None
    spans = [[(0.0, end_s)] for _ in names]
    trace, metrics = Trace(keep_messages=False), Metrics()
    moves = []
    if churn and clients > 11:
        spans[11], spans[5] = [(0.2 * end_s, end_s)], [(0.0, 0.75 * end_s)]
        spans[0] = [(0.0, 0.5 * end_s), (0.8 * end_s, end_s)]
        moves = [(0.2, 11, "join"), (0.5, 0, "crash"), (0.75, 5, "leave"), (0.8, 0, "rejoin")]
    for i, name in enumerate(names):
        if spans[i][0][0] == 0:
            trace.lifecycle(0.0, name, "start")
    for share, client, event in moves:
        trace.lifecycle(share * end_s, names[client], event)
    weights: dict[tuple[int, int], float] = {}
    for time_s in np.linspace(0, end_s, evaluations).tolist():
        up = [i for i in range(clients) if any(a <= time_s < b or b == end_s == time_s for a, b in spans[i])]
        for i in up:
            age = time_s - spans[i][-1][0] * (i != 0)
            level = 0.1 + (0.82 - 0.02 * (i % 4)) * (1 - np.exp(-age / end_s * (2 if i == 3 else 7)))
            if measure == "accuracy":
                metrics.add(
                    time_s, names[i], "accuracy", float(np.clip(level + random.normal(0, 0.012), 0, 1))
                )
            elif measure is not None:
                metrics.add(
                    time_s, names[i], measure, float(10 ** (1 - 4 * level) * random.uniform(0.7, 1.4))
                )
            metrics.add(time_s, names[i], "iterations", round(5 * age / (5 if i == 3 else 1)))
            if staleness and time_s > 0:
                metrics.add(time_s, names[i], "staleness", float(random.gamma(2, 0.8) * (4 if i == 3 else 1)))
        metrics.add(time_s, "all", "bytes_sent", 4.1e4 * time_s * clients if messages else 0.0)
        if graph:
            pull = 1 - np.exp(-4 * time_s / end_s)
            for i in range(clients):
                for j in (
                    range(clients) if reach is None else range(max(0, i - reach), min(clients, i + reach))
                ):
                    same = truth is not None and truth[i] == truth[j]
                    target = 1.0 if same else 0.0
                    weight = float(np.clip(0.5 + (target - 0.5) * pull * 1.1 + random.normal(0, 0.06), 0, 1))
                    if i != j:
                        weights[i, j] = weight
                        metrics.graph(time_s, i, j, weight)
    intervals = []
    for i, name in enumerate(names):
        for start, end in spans[i] if devices else []:
            begins = np.linspace(start, end, max(2, int(steps * (end - start) / end_s)))
            pace = 1.0 if i == 3 else random.uniform(0.35, 0.8)
            lengths = np.diff(begins) * pace
            rows = zip(begins[:-1].tolist(), (begins[:-1] + lengths).tolist(), strict=True)
            intervals += [(name, a, b, "busy") for a, b in rows]
    accuracy = metrics.latest("accuracy")
    run = RunDirectory.create(folder, "quickstart", 1, "9f3a1c20")
    run.write_scenario(SCENARIO)
    run.write_metrics(metrics)
    run.write_events(trace)
    run.write_intervals(intervals)
    run.write_summary(
        {
            "scenario": "quickstart",
            "protocol": "cobo",
            "seed": 1,
            "virtual_seconds": end_s,
            "wall_seconds": 23.4,
            "trace_hash": trace.hash(),
            "clients": {"initial": clients, "joined": 1, "left": 1, "crashed": 1, "alive": clients - 1},
            "accuracy": accuracy_summary(accuracy.values()),
            "better_than_alone": 11 / 12 if measure == "accuracy" else None,
            "graph": graph_summary(weights, truth) if graph and truth is not None else None,
            "messages": {
                "sent": 10_480 if messages else 0,
                "delivered": 10_377 if messages else 0,
                "lost": 55 if messages else 0,
                "dropped": 41 if messages else 0,
                "in_flight": 7 if messages else 0,
                "bytes": 295_000_000 if messages else 0,
            },
            "engine": {"jobs": 48_210, "batches": 1_204, "mean_batch": 40.0415, "seconds": 14.2},
            "device_time": {"busy": 3_920.5, "waiting": 2_850.25, "down": 429.25},
            "bytes_by_type": {
                "Model": [6_120, 249_000_000],
                "Gradient": [1_130, 45_900_000],
                "Ask": [3_160, 101_120],
                "Hello": [70, 2_100],
            }
            if messages
            else {},
            "failures": [],
            "interrupted": interrupted,
            "clusters": truth,
            "client_names": names,
        }
    )
    return run
