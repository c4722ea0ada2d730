"""Whether two runs are the same one, whatever they were interrupted by."""

from pathlib import Path
from typing import Any

import torch

from sim.errors import UserError
from sim.results.store.output_dir import CHECKPOINT
from sim.results.store.run_directory import RunDirectory
from sim.run.resume.checkpoint import Checkpoint


def require_same(first: Path, second: Path, *, ends: bool = True) -> None:
    """Summaries but wall time and command, tables, and if wanted checkpoints at the ends, bit for bit."""
    runs = [RunDirectory.load(path) for path in (first, second)]
    one, other = (_without_wall_time(run.summary()) for run in runs)
    assert one["trace_hash"] == other["trace_hash"]
    assert one == other
    for table in ("events", "metrics", "graph", "intervals", *(["energy"] if runs[0].has("energy") else [])):
        assert runs[0].scan(table).collect().equals(runs[1].scan(table).collect()), table
    if not ends:
        return
    files = [path / CHECKPOINT for path in (first, second)]
    assert files[0].is_file() == files[1].is_file()
    if files[0].is_file():
        require_same_rows(checkpoint_in(first), checkpoint_in(second))


def checkpoint_in(folder: Path) -> Checkpoint:
    """The last one of results. UserError if any is damaged."""
    at, damaged = Checkpoint.latest(folder)
    if damaged:
        raise UserError("\n".join(map(str, damaged)))
    assert at is not None
    return at


def require_same_rows(first: Checkpoint, second: Checkpoint) -> None:
    assert (first.time_s, first.reads, first.flushes) == (second.time_s, second.reads, second.flushes)
    assert first.rows.keys() == second.rows.keys()
    for width, there in first.rows.items():
        assert torch.equal(there.free, second.rows[width].free), width
        # As bits: nan is equal to nan then.
        assert torch.equal(there.rows.view(torch.int32), second.rows[width].rows.view(torch.int32)), width


def _without_wall_time(summary: dict[str, Any]) -> dict[str, Any]:
    engine = {key: value for key, value in summary["engine"].items() if "seconds" not in key}
    energy = {
        "energy": None if summary["energy"] is None else summary["energy"] | {"simulation_cpu_seconds": 0}
    }
    return summary | energy | {"engine": engine, "wall_seconds": None, "overrides": None, "fork": None}
