"""The result directory of a run: written beside its final place and moved there in one step.

runs/<scenario>-<seed>-<short hash>/
    scenario.toml      the resolved scenario; loads to an equal one
    metrics.parquet    time (s), actor, name, value
    graph.parquet      time (s), source, target, weight: at each time the whole graph, pairs left out weigh 0
    events.parquet     the trace: time (s), event, actor, peer, type, bytes, detail
    intervals.parquet  actor, start (s), end (s), state: busy or down; up and not busy is waiting
    summary.json       the outcome; keys in SUMMARY_KEYS
    report.html        written by sim.results.report from the other files
"""

import json
import math
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sim.errors import UserError
from sim.results.metrics import GRAPH_SCHEMA, METRICS_SCHEMA, Metrics
from sim.results.trace import TABLE_SCHEMA, Trace

INTERVALS_SCHEMA = pa.schema(
    [("actor", pa.string()), ("start", pa.float64()), ("end", pa.float64()), ("state", pa.string())]
)
SUMMARY_KEYS = (
    "scenario",
    "protocol",
    "seed",
    "virtual_seconds",
    "wall_seconds",
    "trace_hash",
    "clients",
    "accuracy",
    "better_than_alone",
    "graph",
    "messages",
    "engine",
    "device_time",
)
_TABLES = {
    "metrics": METRICS_SCHEMA,
    "graph": GRAPH_SCHEMA,
    "events": TABLE_SCHEMA,
    "intervals": INTERVALS_SCHEMA,
}


class RunDirectory:
    """The files of one run. `create` for writing, `load` for reading.

    A directory being written is hidden under a temporary name until `finalise` moves it to its final one,
    replacing the results of an earlier run of the same scenario and seed. Whatever stops a run, a reader sees
    the old results or the new ones, never a mixture.
    """

    def __init__(self, path: Path, final_path: Path) -> None:
        self.path = path
        self.final_path = final_path

    def __repr__(self) -> str:
        return f"<RunDirectory {self.path}>"

    @classmethod
    def create(cls, out_base: Path, scenario_name: str, seed: int, short_hash: str) -> Self:
        """A new directory for `<out_base>/<scenario>-<seed>-<hash>`, with its folders made as needed.

        Raises UserError if something that is no result directory is in the way.
        """
        final = Path(out_base) / f"{scenario_name}-{seed}-{short_hash}"
        if final.exists() and not (final / "summary.json").is_file():
            raise UserError(f"{final} exists and is no result directory (no summary.json); move it away")
        path = final.with_name(f".{final.name}.{uuid4().hex[:8]}")
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise UserError(f"cannot write results to {out_base}: {error.strerror}") from error
        return cls(path, final)

    @classmethod
    def load(cls, path: Path) -> Self:
        """The directory of a finished run; UserError if `path` is none."""
        path = Path(path)
        if not (path / "summary.json").is_file():
            raise UserError(f"{path} is not a result directory: it has no summary.json")
        return cls(path, path)

    def write_scenario(self, text: str) -> None:
        """The resolved scenario, as TOML."""
        (self.path / "scenario.toml").write_text(text, encoding="utf-8")

    def write_metrics(self, metrics: Metrics) -> None:
        """The measurements and the collaboration graph."""
        self._write("metrics", metrics.to_table())
        self._write("graph", metrics.graph_table())

    def write_events(self, trace: Trace) -> None:
        """The trace, as far as it was kept."""
        self._write("events", trace.to_table())

    def write_intervals(self, intervals: Iterable[tuple[str, float, float, str]]) -> None:
        """The devices' time: (actor, start_s, end_s, "busy" or "down"); an actor's intervals are disjoint."""
        rows = list(intervals)
        columns = zip(*rows, strict=True) if rows else [()] * len(INTERVALS_SCHEMA)
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, INTERVALS_SCHEMA, strict=True)
        ]
        self._write("intervals", pa.Table.from_arrays(arrays, schema=INTERVALS_SCHEMA))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """The outcome; numbers that are not finite become null.

        Raises ValueError if a key of SUMMARY_KEYS is missing.
        """
        missing = [key for key in SUMMARY_KEYS if key not in summary]
        if missing:
            raise ValueError(f"the summary lacks {', '.join(missing)}")
        text = json.dumps(_plain(summary), indent=2, ensure_ascii=False, allow_nan=False)
        (self.path / "summary.json").write_text(text + "\n", encoding="utf-8")

    def finalise(self) -> Path:
        """Moves the directory to its final place, over an earlier run's, and returns that place."""
        if not (self.path / "summary.json").is_file():
            raise ValueError(f"{self.path} has no summary.json yet")
        if self.path != self.final_path:
            # A folder can't be renamed over a full one, so the old results step aside first.
            old = self.path.with_name(self.path.name + ".old")
            if self.final_path.exists():
                self.final_path.rename(old)
            self.path.rename(self.final_path)
            self.path = self.final_path
            if old.exists():
                shutil.rmtree(old)
        return self.path

    def discard(self) -> None:
        """Removes what was written, for a run that ends with nothing to keep; no effect once finalised."""
        if self.path != self.final_path:
            shutil.rmtree(self.path, ignore_errors=True)

    def scenario_text(self) -> str:
        """The resolved scenario; empty if it was not written."""
        file = self.path / "scenario.toml"
        return file.read_text(encoding="utf-8") if file.is_file() else ""

    def summary(self) -> dict[str, Any]:
        """The outcome; UserError if the file is damaged."""
        file = self.path / "summary.json"
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise UserError(f"{file} is damaged: {error}") from error

    def scan(self, table: str) -> pl.LazyFrame:
        """One of the tables "metrics", "graph", "events", "intervals"; empty if it was not written."""
        file = self.path / f"{table}.parquet"
        if file.is_file():
            return pl.scan_parquet(file)
        empty = pl.from_arrow(_TABLES[table].empty_table())
        assert isinstance(empty, pl.DataFrame)
        return empty.lazy()

    def _write(self, table: str, content: pa.Table) -> None:
        pq.write_table(content, self.path / f"{table}.parquet", compression="zstd")


def _plain(value: Any) -> Any:
    """`value` as JSON knows it: numpy scalars as numbers, infinite and undefined numbers as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
