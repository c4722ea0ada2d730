"""A run's measurements as TensorBoard reads them; needs the package tensorboard.

A step is a millisecond of virtual time, and so is TensorBoard's clock: its "relative" is virtual hours.
"""

from pathlib import Path
from typing import Any

import polars as pl

from sim.results.metrics import ALL
from sim.results.store.run_directory import RunDirectory


def write_tensorboard(directory: RunDirectory) -> Path:
    """Writes an events file into a result directory and returns that directory.

    Of each metric `<name>/mean`, `/min` and `/max` over the clients that were measured;
    totals are `all/<name>`.
    """
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

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
    writer = EventFileWriter(str(directory.path))
    try:
        for row in of_clients.iter_rows(named=True):
            for of in ("mean", "min", "max"):
                writer.add_event(_scalar(f"{row['name']}/{of}", row["time"], row[of]))
        for row in totals.iter_rows(named=True):
            writer.add_event(_scalar(f"all/{row['name']}", row["time"], row["value"]))
    finally:
        writer.close()
    return directory.path


def _scalar(tag: str, time_s: float, value: float) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    return Event(wall_time=time_s, step=round(time_s * 1000), summary=summary)
