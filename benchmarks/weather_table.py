"""What a run in bad weather came to, and the means of such runs over their seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sim.results.metrics import beside_largest, graph_summary, time_to_target
from sim.results.view import RunView

CALM = "calm"
REACHED = 0.9
"""Share of the calm accuracy whose time is told."""
AXES = ("data", "method", "weather")
KEYS = ("data", "family", "method", "weather", "seed")
SCHEMA: dict[str, Any] = {
    **dict.fromkeys(KEYS[:-1], pl.String),
    "seed": pl.Int64,
    "commit": pl.String,
    "accuracy": pl.Float64,
    "calm": pl.Float64,
    "excluded": pl.Float64,
    "worst": pl.Float64,
    "precision": pl.Float64,
    "recall": pl.Float64,
    "precision_counted": pl.Float64,
    "recall_counted": pl.Float64,
    "seconds": pl.Float64,
    "messages": pl.Int64,
    "finished": pl.Boolean,
}
"""The columns of docs/weather/runs.csv, which docs/weather.md explains."""
_OF_80 = "local, of 80 %"  # beside methods that judge models by held-back samples
_CONTROLS = {
    "learn-to-collaborate": _OF_80,
    "meta-l2c": _OF_80,
    "fedfomo": _OF_80,
    "validation-trust": _OF_80,
    "dfedavgm": "dfedavgm, alone",
    "mapl": "mapl, alone",
    "mapl-plus": "mapl, alone",
}


def control_of(method: str) -> str | None:
    """The local baseline that a method is compared with; None for one that is such itself."""
    name = method.partition(",")[0]
    return None if name == "local" or method.endswith(", alone") else _CONTROLS.get(name, "local")


def outcome(view: RunView, calm: RunView, excluded: Sequence[int]) -> dict[str, Any]:
    """What a run came to, with the calm run of the same method and seed, by column of `SCHEMA`.

    excluded: numbers of the clients to which the weather itself happens. Accuracies are shares of 1.
    """
    assert view.measure is not None
    counted = np.array([client not in excluded for client in range(len(view.clients))])
    end = view.at_the_end
    expected = float(calm.at_the_end[np.flatnonzero(counted)].mean())
    theirs = end[~counted][~np.isnan(end[~counted])]
    precision, recall = _graph(view, np.flatnonzero(counted).tolist())
    return {
        "accuracy": float(end[counted].mean()),
        "calm": expected,
        "excluded": float(theirs.mean()) if theirs.size else None,
        "worst": view.summary["accuracy"]["worst_decile"],
        "precision": view.get("graph", "edge_precision"),
        "recall": view.get("graph", "edge_recall"),
        "precision_counted": precision,
        "recall_counted": recall,
        "seconds": time_to_target(view.measure[1].mean_of(counted), REACHED * expected),
        "messages": view.summary["messages"]["sent"],
        "finished": view.summary["finished"],
    }


def _graph(view: RunView, members: Sequence[int]) -> tuple[float | None, float | None]:
    """Precision and recall of the last graph among some clients."""
    times, threshold = view.snapshot_times(2), view.get("graph", "edge_threshold")
    if view.clusters is None or threshold is None or not times.size:
        return None, None
    source, target, weight = (column.tolist() for column in view.snapshot(times[-1]))
    weights = dict(zip(zip(source, target, strict=True), weight, strict=True))
    if view.get("graph", "weights_are_shares"):
        weights = beside_largest(weights)
    found = graph_summary(weights, view.clusters.tolist(), members, threshold=threshold)
    return found["edge_precision"], found["edge_recall"]


def as_table(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Runs as a table of `SCHEMA`."""
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def load(file: Path) -> pl.DataFrame:
    """The runs in a file, none where there is no file."""
    return pl.read_csv(file, schema=SCHEMA) if file.exists() else as_table([])


def means(runs: pl.DataFrame) -> pl.DataFrame:
    """A row for each data set, method and weather; shares in %, their spreads over seeds too.

    seconds: none where a seed never came there. below_control: whether the method's control (`control_of`)
    does better in the same weather; none for controls.
    """
    percent = pl.col("accuracy") * 100
    found = runs.group_by(KEYS[:-1], maintain_order=True).agg(
        pl.len().alias("seeds"),
        percent.mean(),
        percent.std().alias("deviation"),
        (percent - pl.col("calm") * 100).mean().alias("against_calm"),
        pl.col("excluded", "worst").mean() * 100,
        pl.col("precision", "recall", "precision_counted", "recall_counted").mean(),
        pl.when(pl.col("seconds").count() == pl.len()).then(pl.col("seconds").mean()).alias("seconds"),
        pl.col("messages").mean().round().cast(pl.Int64),
        pl.col("finished").all(),
    )
    accuracies = {row[:4]: row[5] for row in found.iter_rows()}
    below = []
    for (data, family, method, weather), accuracy in accuracies.items():
        control = accuracies.get((data, family, control_of(method), weather))
        below.append(None if control is None else accuracy < control)
    return found.with_columns(pl.Series("below_control", below, pl.Boolean))
