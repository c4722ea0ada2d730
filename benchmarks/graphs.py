"""Comparison of the learned graphs of a sweep's runs with the true clusters.

`python -m benchmarks.graphs SWEEP [--round 20]` prints for each method, by seed: precision and recall of
the edges, and the l1 of rows (figure 6 of SCooL's paper). It prints them at the end among the clients that
are up, and after the given number of rounds among all clients, with the remaining weight of departed
clients. For a method that assigns clusters, such as IFCA, the graph joins the clients of the same cluster.
If the data have no clusters, the true graph joins the clients with the same classes.
"""

import argparse
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.measuring import table
from sim.results.metrics import graph_summary, weights_over_largest
from sim.results.view import RunView
from sim.studies.study import StudiedRun, load_study

Weights = Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class Graph:
    """Measures of a learned graph; None for a measure that is undefined."""

    precision: float | None
    recall: float | None
    l1_of_rows: float | None


def row_distance(weights: Weights, clusters: Sequence[int], members: Sequence[int]) -> float:
    """Return the mean over members of sum_j |w_ij - w*_ij| (0 to 2), with each row divided by its sum.

    SCooL, figure 6. w* is equal for all members of the client's cluster. Clients that are alone in their
    cluster have no true row and do not count; NaN if all are.
    """
    place = {client: index for index, client in enumerate(members)}
    of = np.asarray(clusters)[list(members)]
    truth = (of[:, None] == of) & ~np.eye(len(of), dtype=bool)
    found = np.zeros((len(of), len(of)))
    for (i, j), weight in weights.items():
        if i in place and j in place:
            found[place[i], place[j]] = weight
    has_peers = truth.any(axis=1)
    if not has_peers.any():
        return math.nan
    rows = [
        matrix[has_peers] / np.maximum(matrix[has_peers].sum(axis=1, keepdims=True), 1e-12)
        for matrix in (found, truth)
    ]
    return float(np.abs(rows[0] - rows[1]).sum(axis=1).mean())


def true_clusters(view: RunView) -> list[int] | None:
    """Return the cluster of each client: the data's, or else the clients with the same classes.

    A client without samples has its own cluster. None if all clients have the same classes, or if these are
    unknown.
    """
    if view.clusters is not None:
        clusters: list[int] = view.clusters.tolist()
        return clusters
    counts = view.get("class_counts")
    if counts is None:
        return None
    classes = [tuple(np.flatnonzero(row).tolist()) or client for client, row in enumerate(counts)]
    numbers = {found: number for number, found in enumerate(dict.fromkeys(classes))}
    return None if len(numbers) < 2 else [numbers[found] for found in classes]


def graph_at(view: RunView, time_s: float, members: Sequence[int]) -> Graph:
    """Return the last graph up to a virtual time, among the given clients."""
    weights, clusters = _weights(view, time_s), true_clusters(view)
    if clusters is None or weights is None:
        return Graph(None, None, None)
    scaled = weights_over_largest(weights) if view.get("graph", "weights_are_shares") else weights
    found = graph_summary(scaled, clusters, members, threshold=view.edge_threshold)
    distance = row_distance(weights, clusters, members)
    return Graph(found["edge_precision"], found["edge_recall"], None if math.isnan(distance) else distance)


def _weights(view: RunView, time_s: float) -> dict[tuple[int, int], float] | None:
    times = view.snapshot_times(1_000_000)
    times = times[times <= time_s]
    if not times.size:
        return _assigned(view, time_s)
    source, target, weight = [column.tolist() for column in view.snapshot(times[-1])]
    return dict(zip(zip(source, target, strict=True), weight, strict=True))


def _assigned(view: RunView, time_s: float) -> dict[tuple[int, int], float] | None:
    """Return weights of 1 between clients with equal last observations of `cluster` (IFCA), or None."""
    panel = view.panel("cluster")
    if panel is None or not (panel.times <= time_s).any():
        return None
    chosen = panel.values[panel.times <= time_s][-1].tolist()
    return {
        (i, j): 1.0
        for i, own in enumerate(chosen)
        for j, other in enumerate(chosen)
        if i != j and own == other
    }


def weight_of(view: RunView, clients: Collection[int]) -> float:
    """Return the total weight given to these clients at the end."""
    weights = _weights(view, view.end_s) or {}
    return float(sum([weight for (_, target), weight in weights.items() if target in clients]))


def time_of_round(view: RunView, number: int) -> float:
    """Return the time (s) at which clients had finished the iterations on average, or the end of the run."""
    panel = view.panel("iterations")
    if panel is None:
        return view.end_s
    means = panel.mean_of(np.ones(len(view.clients), dtype=bool))
    there = np.flatnonzero(means.values >= number)
    return float(means.times[there[0]]) if there.size else view.end_s


def line(runs: Iterable[StudiedRun], number: int) -> Iterator[str]:
    """Return the entries of one group of runs that differ only in their seeds."""
    columns: list[list[float | None]] = []
    for run in runs:
        view = run.view
        up = np.flatnonzero(~np.isnan(view.at_the_end)).tolist()
        gone = set(range(len(view.clients))) - set(up)
        last = graph_at(view, view.end_s, up)
        early = graph_at(view, time_of_round(view, number), range(len(view.clients)))
        shown = [last.precision, last.recall, last.l1_of_rows, early.precision, early.l1_of_rows]
        columns.append([*shown, weight_of(view, gone) if gone else None])
    for values in zip(*columns, strict=True):
        yield " / ".join("-" if value is None else f"{value:.2f}" for value in values)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--round", type=int, default=20, help="20")
    chosen = parser.parse_args()
    study = load_study([chosen.sweep])
    groups: dict[tuple[str, ...], list[StudiedRun]] = {}
    for run in study.runs:
        groups.setdefault(tuple(map(str, run.values.values())), []).append(run)
    after = f"after {chosen.round} rounds"
    heads = [*study.axes, "precision", "recall", "l1 of rows", f"precision {after}", f"l1 {after}", "gone"]
    print(table(heads, [[*values, *line(runs, chosen.round)] for values, runs in groups.items()]))


if __name__ == "__main__":
    main()
