"""Measurements of a run: records, and functions that summarize them.

All measurements belong to the observer: clients do not see them, and they take no virtual time.
"""

import math
from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

METRICS_COLUMNS = (
    ("time", pa.float64(), "virtual seconds"),
    ("actor", pa.string(), "a client or server; `all` for totals of the run"),
    (
        "name",
        pa.string(),
        "the measure: `accuracy` (a share), `loss` (nats), an observation of a protocol, ...",
    ),
    (
        "value",
        pa.float64(),
        "the value; for an observation of a protocol, the mean since the previous evaluation",
    ),
)
"""Columns of metrics.parquet: name, type and meaning."""
GRAPH_COLUMNS = (
    ("time", pa.float64(), "virtual seconds, of an evaluation"),
    ("source", pa.int32(), "number of the client that gives the weight"),
    ("target", pa.int32(), "number of the peer"),
    ("weight", pa.float64(), "the result of `weights`; omitted pairs have weight 0"),
)
COALITIONS_COLUMNS = (
    (
        "time",
        pa.float64(),
        "virtual seconds of the evaluation that found the coalition; a row for each change",
    ),
    ("client", pa.int32(), "number of the client"),
    ("coalition", pa.int32(), "the lowest client number among its members, which identifies the coalition"),
    ("since", pa.float64(), "virtual seconds at which the client became a member of exactly this coalition"),
    (
        "alone",
        pa.float64(),
        "loss on the client's validation samples of the best model by its loss; NaN if unknown",
    ),
    ("full", pa.float64(), "the same for the best model with all clients"),
    ("equilibrium", pa.float64(), "the same for the best model in its coalition"),
)
METRICS_SCHEMA, GRAPH_SCHEMA, COALITIONS_SCHEMA = [
    pa.schema([(name, kind) for name, kind, _ in columns])
    for columns in (METRICS_COLUMNS, GRAPH_COLUMNS, COALITIONS_COLUMNS)
]
ALL = "all"  # actor of totals such as bytes_sent
EDGE_THRESHOLD = 0.5


class Series(NamedTuple):
    """A quantity over virtual time: `times` [T] ascending, in seconds, and `values` [T]."""

    times: NDArray[np.float64]
    values: NDArray[np.float64]


class Metrics:
    """Records of measurements (long form) and of the learned collaboration graph (sparse snapshots)."""

    def __init__(self) -> None:
        self._times = array("d")
        self._actors = array("i")
        self._names = array("i")
        self._values = array("d")
        self._ids: dict[str, int] = {}
        self._graph_rows: list[tuple[float, int, int, float]] = []
        self._graph_time_s = -math.inf
        self._snapshot: dict[tuple[int, int], float] = {}
        self._before: dict[tuple[int, int], float] = {}
        self._coalition_rows: list[tuple[Any, ...]] = []
        self._coalitions: dict[int, tuple[Any, ...]] = {}  # last row of each client, without its time

    def add(self, time_s: float, actor: str, name: str, value: float) -> None:
        """Add a measurement of one actor; totals have the actor "all"."""
        self._times.append(time_s)
        self._actors.append(self._ids.setdefault(actor, len(self._ids)))
        self._names.append(self._ids.setdefault(name, len(self._ids)))
        self._values.append(value)

    def add_all(self, time_s: float, actors: Sequence[str], name: str, values: Sequence[float]) -> None:
        """Add one measurement of each actor."""
        ids, count = self._ids, len(actors)
        self._times.extend(repeat(time_s, count))
        self._actors.extend([ids.setdefault(actor, len(ids)) for actor in actors])
        self._names.extend(repeat(ids.setdefault(name, len(ids)), count))
        self._values.extend(values)

    def graph(self, time_s: float, source: int, target: int, weight: float) -> None:
        """Add a weight of the collaboration graph.

        The weights of one time form the whole graph at that time; absent pairs have weight 0. A snapshot
        stores its non-zero weights and, once, the pairs that fell to 0: the snapshot alone and the last value
        of every pair give the same graph.
        """
        if time_s != self._graph_time_s:
            self._graph_rows += self._open_rows()
            self._before = self._snapshot
            self._snapshot = {}
            self._graph_time_s = time_s
        self._snapshot[source, target] = weight

    def _open_rows(self) -> list[tuple[float, int, int, float]]:
        pairs = {**self._snapshot, **{pair: 0.0 for pair in self._before if pair not in self._snapshot}}
        return [
            (self._graph_time_s, *pair, weight)
            for pair, weight in pairs.items()
            if weight != 0 or self._before.get(pair, 0.0) != 0
        ]

    def coalition(
        self,
        time_s: float,
        client: int,
        members: Collection[int],
        since_s: float,
        losses: Mapping[str, float],
    ) -> None:
        """Add a client's coalition and its validation losses, if they changed."""
        found = [losses.get(name, math.nan) for name in COALITIONS_SCHEMA.names[4:]]
        row = (client, min(members), since_s, *found)
        if repr(self._coalitions.get(client)) != repr(row):  # nan is not equal to itself
            self._coalitions[client] = row
            self._coalition_rows.append((time_s, *row))

    def coalitions(self) -> dict[int, dict[str, Any]]:
        """Return the last record of each client's coalition, by column name."""
        names = COALITIONS_SCHEMA.names[1:]
        return {client: dict(zip(names, row, strict=True)) for client, row in self._coalitions.items()}

    def coalition_rows(self) -> list[tuple[Any, ...]]:
        """Return all coalitions, as rows of `COALITIONS_SCHEMA`."""
        return list(self._coalition_rows)

    def add_coalitions(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add `coalition_rows` of another object, in order of time."""
        self._coalition_rows += rows
        self._coalitions |= {row[1]: row[1:] for row in rows}

    def coalition_table(self) -> pa.Table | None:
        """Return all coalitions, with the columns of `COALITIONS_SCHEMA`; None if there are none."""
        return arrow_table(self._coalition_rows, COALITIONS_SCHEMA) if self._coalition_rows else None

    def weights(self) -> dict[tuple[int, int], float]:
        """Return the latest snapshot of the collaboration graph: (source, target) -> weight."""
        return dict(self._snapshot)

    def series(self, actor: str, name: str) -> Series:
        """Return the values of an actor under a name, in order of recording."""
        times, actors, values = self._recorded(name)
        chosen = actors == self._ids.get(actor, -1)
        return Series(times[chosen], values[chosen])

    def mean(self, name: str) -> Series:
        """Return the mean over all measured actors at each time, without totals ("all")."""
        times, actors, values = self._recorded(name)
        of_clients = actors != self._ids.get(ALL, -1)
        times, position = np.unique(times[of_clients], return_inverse=True)
        sums = np.bincount(position, weights=values[of_clients], minlength=len(times))
        return Series(times, sums / np.bincount(position, minlength=len(times)))

    def latest(self, name: str) -> dict[str, float]:
        """Return the last value under `name` by actor, in order of the actors' first appearance."""
        texts = list(self._ids)
        _, actors, values = self._recorded(name)
        return {texts[actor]: value for actor, value in zip(actors.tolist(), values.tolist(), strict=True)}

    def last_growth_s(self, name: str) -> dict[str, float]:
        """Return the time of the last measurement that exceeded the previous one, by actor."""
        texts = list(self._ids)
        times, actors, values = self._recorded(name)
        order = np.argsort(actors, kind="stable")
        times, actors, values = times[order], actors[order], values[order]
        grown = (np.diff(actors) == 0) & (np.diff(values) > 0)
        rows = zip(actors[1:][grown].tolist(), times[1:][grown].tolist(), strict=True)
        return {texts[actor]: time_s for actor, time_s in rows}

    def first_s(self, name: str) -> dict[str, float]:
        """Return the time of the first measurement, by actor."""
        texts = list(self._ids)
        times, actors, _ = self._recorded(name)
        earliest: dict[str, float] = {}
        for actor, time_s in zip(actors.tolist(), times.tolist(), strict=True):
            earliest.setdefault(texts[actor], time_s)
        return earliest

    def newest(self) -> tuple[float, list[tuple[str, str, float]]]:
        """Return the latest time, and its measurements: (actor, name, value)."""
        texts, time_s, rows = list(self._ids), self._times[-1], []
        for row in range(len(self._times) - 1, -1, -1):
            if self._times[row] != time_s:
                break
            rows.append((texts[self._actors[row]], texts[self._names[row]], self._values[row]))
        return time_s, rows[::-1]

    def _recorded(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
        """Return times, actors' numbers and values under a name, as copies: views would lock the arrays."""
        chosen = np.array(self._names) == self._ids.get(name, -1)
        return np.array(self._times)[chosen], np.array(self._actors)[chosen], np.array(self._values)[chosen]

    def to_table(self) -> pa.Table:
        """Return all measurements, in order, with the columns of `METRICS_SCHEMA`."""
        texts = pl.Series(list(self._ids), dtype=pl.String)
        columns = {
            "time": np.array(self._times),
            "actor": texts.gather(np.array(self._actors)),
            "name": texts.gather(np.array(self._names)),
            "value": np.array(self._values),
        }
        return pl.DataFrame(columns).to_arrow().cast(METRICS_SCHEMA)

    def rows_from(self, start: int) -> list[tuple[float, str, str, float]]:
        """Return the measurements from number `start` on, as rows of `METRICS_SCHEMA`."""
        texts = list(self._ids)
        columns = (self._times, self._actors, self._names, self._values)
        rows = zip(*[column[start:] for column in columns], strict=True)
        return [(time_s, texts[actor], texts[name], value) for time_s, actor, name, value in rows]

    def graph_rows_from(self, start: int) -> tuple[list[tuple[float, int, int, float]], int]:
        """Return `graph_rows` from number `start` on, and the number of rows that are final."""
        return self._graph_rows[start:] + self._open_rows(), len(self._graph_rows)

    def graph_rows(self) -> list[tuple[float, int, int, float]]:
        """Return all snapshots, as rows of `GRAPH_SCHEMA`."""
        return self._graph_rows + self._open_rows()

    def graph_table(self) -> pa.Table:
        """Return all snapshots, with the columns of `GRAPH_SCHEMA`."""
        return arrow_table(self.graph_rows(), GRAPH_SCHEMA)


def arrow_table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """Return a table of rows, which may be empty."""
    frame = pl.DataFrame(rows, schema=schema.names, orient="row", strict=False, infer_schema_length=None)
    return frame.to_arrow().cast(schema)


def worst_decile(values: ArrayLike, *, higher_is_better: bool = True) -> float:
    """Return the mean of the worst ceil(10%) of the values."""
    ordered = np.sort(np.asarray(values, dtype=float))
    count = math.ceil(len(ordered) / 10)
    return float((ordered[:count] if higher_is_better else ordered[-count:]).mean())


def accuracy_summary(values: Collection[float], *, higher_is_better: bool = True) -> dict[str, float | None]:
    """Return the number of clients, and mean, population std and worst decile (None without clients)."""
    if not values:
        return {"clients": 0, "mean": None, "std": None, "worst_decile": None}
    found = np.array(list(values), dtype=float)
    mean, std = float(found.mean()), float(found.std())
    return {
        "clients": len(values),
        "mean": mean,
        "std": std,
        "worst_decile": worst_decile(found, higher_is_better=higher_is_better),
    }


def weights_over_largest(weights: Mapping[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    """Return weights w_ij divided by the largest of their row i.

    Peers in a large cluster have small shares, so edges are defined relative to the largest weight.
    """
    largest: dict[int, float] = {}
    for (source, _), weight in weights.items():
        largest[source] = max(largest.get(source, 0.0), weight)
    return {(i, j): weight / (largest[i] or 1.0) for (i, j), weight in weights.items()}


def graph_summary(
    weights: Mapping[tuple[int, int], float],
    clusters: Sequence[int],
    alive: Collection[int] | None = None,
    *,
    threshold: float = EDGE_THRESHOLD,
) -> dict[str, float | None]:
    """Compare the learned graph with the true clusters, over ordered pairs i != j of alive clients.

    `weights` maps (i, j) to w_ij, 0 for absent pairs. The true weight is 1 inside a cluster and 0 across.

    - l1: mean |w_ij - true_ij|; None with fewer than two clients.
    - edge_precision: share of the learned edges (w_ij > `threshold`) that are true; None if none was learned.
    - edge_recall: share of the true edges that were learned; None if there is none.
    """
    members = set(range(len(clusters)) if alive is None else alive)
    sizes = Counter(clusters[client] for client in members)
    true_edges = sum(size * (size - 1) for size in sizes.values())
    pairs = len(members) * (len(members) - 1)
    difference = float(true_edges)  # as if all weights were 0; each weight corrects its pair
    learned = hits = 0
    for (i, j), weight in weights.items():
        if i == j or i not in members or j not in members:
            continue
        same = clusters[i] == clusters[j]
        difference += abs(weight - same) - same
        if weight > threshold:
            learned += 1
            hits += same
    return {
        "l1": difference / pairs if pairs else None,
        "edge_precision": hits / learned if learned else None,
        "edge_recall": hits / true_edges if true_edges else None,
    }


def share_better(
    own: Mapping[str, float], alone: Mapping[str, float], *, higher_is_better: bool = True
) -> float | None:
    """Return the share of the clients in both mappings that are strictly better than alone.

    None if no client is in both.
    """
    gains = _gains(own, alone, higher_is_better).values()
    return sum(gain > 0 for gain in gains) / len(gains) if gains else None


def gain_summary(
    own: Mapping[str, float], alone: Mapping[str, float], *, higher_is_better: bool = True
) -> dict[str, Any] | None:
    """Summarize the gains with peers over the clients in both mappings; None if no client is in both.

    A gain is the difference from the same client's result alone, above 0 if it is better with peers.

    - better, worse: number of clients that are strictly better with peers, or alone.
    - mean_alone: mean of the clients' results alone; mean_gain: mean of their gains.
    - least, most: the client that gained least or most, and how much.
    """
    gains = _gains(own, alone, higher_is_better)
    if not gains:
        return None
    least, most = min(gains, key=gains.__getitem__), max(gains, key=gains.__getitem__)
    return {
        "better": sum(gain > 0 for gain in gains.values()),
        "worse": sum(gain < 0 for gain in gains.values()),
        "mean_alone": float(np.mean([alone[client] for client in gains])),
        "mean_gain": float(np.mean(list(gains.values()))),
        "least": {"client": least, "gain": gains[least]},
        "most": {"client": most, "gain": gains[most]},
    }


def _gains(own: Mapping[str, float], alone: Mapping[str, float], higher_is_better: bool) -> dict[str, float]:
    """Return the gain of each client over its model alone, if both measures are finite."""
    sign = 1 if higher_is_better else -1
    gains = {client: sign * (value - alone[client]) for client, value in own.items() if client in alone}
    return {client: gain for client, gain in gains.items() if math.isfinite(gain)}


def time_to_target(accuracy: Series, target: float) -> float | None:
    """Return the virtual time (s) of the first evaluation that reaches `target`; None if none does."""
    reached = np.flatnonzero(accuracy.values >= target)
    return float(accuracy.times[reached[0]]) if reached.size else None


def bytes_to_target(accuracy: Series, bytes_sent: Series, target: float) -> float | None:
    """Return the bytes sent by all clients until an evaluation reaches `target`; None if none does."""
    time_s = time_to_target(accuracy, target)
    return None if time_s is None else value_at(bytes_sent, time_s)


def value_at(series: Series, time_s: float) -> float:
    """Return the last value at or before `time_s`; 0 before the first."""
    position = int(np.searchsorted(series.times, time_s, side="right"))
    return float(series.values[position - 1]) if position else 0.0
