"""Outcomes of runs in bad weather, and their means over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sim.results.metrics import graph_summary, time_to_target, weights_over_largest
from sim.results.view import RunView

CALM = "calm"
REACHED = 0.9
"""Share of the calm accuracy for the column `seconds`."""
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
"""Columns of docs/weather/runs.csv, which docs/weather.md explains."""
_OF_80 = "local, of 80 %"  # control of methods that evaluate models on held-out samples
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
    """Return the local baseline of a method; None if the method is a baseline itself."""
    name = method.partition(",")[0]
    return None if name == "local" or method.endswith(", alone") else _CONTROLS.get(name, "local")


def outcome(view: RunView, calm: RunView, excluded: Sequence[int]) -> dict[str, Any]:
    """Return the outcome of a run by column of `SCHEMA`, given the calm run of the same method and seed.

    excluded: numbers of the clients that the weather affects directly. Accuracies are between 0 and 1.
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
    """Return precision and recall of the last graph among some clients."""
    times, threshold = view.snapshot_times(2), view.get("graph", "edge_threshold")
    if view.clusters is None or threshold is None or not times.size:
        return None, None
    source, target, weight = (column.tolist() for column in view.snapshot(times[-1]))
    weights = dict(zip(zip(source, target, strict=True), weight, strict=True))
    if view.get("graph", "weights_are_shares"):
        weights = weights_over_largest(weights)
    found = graph_summary(weights, view.clusters.tolist(), members, threshold=threshold)
    return found["edge_precision"], found["edge_recall"]


def as_table(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return runs as a table of `SCHEMA`."""
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def load(file: Path) -> pl.DataFrame:
    """Return the runs in a file; none without the file."""
    return pl.read_csv(file, schema=SCHEMA) if file.exists() else as_table([])


def means(runs: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each data set, method and weather; shares and their spreads over seeds are in %.

    seconds: null if a seed never reached the target. below_control: whether the method's control
    (`control_of`) is better in the same weather; null for controls. alone: `excluded` of the control in the
    same weather, which is what the excluded clients would have without the method.
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
    excluded = {row[:4]: row[-1] for row in found.select(*KEYS[:-1], "excluded").iter_rows()}
    below, alone = [], []
    for (data, family, method, weather), accuracy in accuracies.items():
        key = (data, family, control_of(method), weather)
        control = accuracies.get(key)
        below.append(None if control is None else accuracy < control)
        alone.append(excluded.get(key))
    added = [pl.Series("below_control", below, pl.Boolean), pl.Series("alone", alone, pl.Float64)]
    return found.with_columns(added)


def with_slow_client(page: str, table: pl.DataFrame) -> str:
    """Return a page with the columns `slow client` and `its alone` of its tables filled in from `means`.

    Each cell has the accuracy of the slow client in "one slow", digits / Fashion-MNIST.
    """
    rows = table.filter(pl.col("weather") == "one slow").to_dicts()
    known = {(row["family"], row["method"], row["data"]): row for row in rows}
    columns, family, lines = list[str](), "", []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("### "):
            family = line.removeprefix("### ").partition(":")[0]
        if not line.startswith("|"):
            columns = []
        elif cells[0] == "method":
            columns = cells
        elif (family, cells[0], "digits") in known:
            for name, of in (("slow client", "excluded"), ("its alone", "alone")):
                if name in columns:
                    both = [known[family, cells[0], data][of] for data in ("digits", "fashion-mnist")]
                    shown = " / ".join("-" if each is None else f"{each:.1f}" for each in both)
                    cells[columns.index(name)] = shown
            line = f"| {' | '.join(cells)} |"
        lines.append(line)
    return "\n".join(lines) + "\n"
