"""A run's measurements as TensorBoard reads them; needs the package tensorboard.

A step is a millisecond of virtual time, and so is TensorBoard's clock: its "relative" is virtual hours.
"""

from pathlib import Path

import polars as pl

from sim.results.metrics import ALL
from sim.results.store import RunDirectory


def write_tensorboard(directory: RunDirectory) -> Path:
    """Writes an events file into a result directory and returns that directory.

    Of each metric `<name>/mean`, `/min` and `/max` over the clients that were measured;
    totals are `all/<name>`.
    """
    from torch.utils.tensorboard import SummaryWriter

    for earlier in directory.path.glob("events.out.tfevents.*"):
        earlier.unlink()
    finite = directory.scan("metrics").filter(pl.col("value").is_finite())
    value = pl.col("value")
    of_clients = (
        finite.filter(pl.col("actor") != ALL)
        .group_by("time", "name")
        .agg(value.mean().alias("mean"), value.min().alias("min"), value.max().alias("max"))
        .sort("time", "name")
        .collect()
    )
    totals = finite.filter(pl.col("actor") == ALL).sort("time", "name").collect()
    with SummaryWriter(directory.path) as writer:
        writer.add_text("scenario", f"```toml\n{directory.scenario_text()}\n```", walltime=0.0)
        for row in of_clients.iter_rows(named=True):
            for of in ("mean", "min", "max"):
                writer.add_scalar(f"{row['name']}/{of}", row[of], *_at(row["time"]))
        for row in totals.iter_rows(named=True):
            writer.add_scalar(f"all/{row['name']}", row["value"], *_at(row["time"]))
    return directory.path


def _at(time_s: float) -> tuple[int, float]:
    return round(time_s * 1000), time_s
