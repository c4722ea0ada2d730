"""Sweeps and comparisons from Python: `sweep`, `compare`, and their results."""

from __future__ import annotations

import html
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from coterie.arguments import (
    choices_of,
    clients_of,
    device_of,
    flag_of,
    folder_of,
    jobs_of,
    number_of,
    options,
    path_of,
    seeds_of,
    text_of,
    texts_of,
)
from coterie.runs import Run
from sim.cli.console import Terminal
from sim.cli.studies import SweepStatusLine
from sim.errors import UserError, require_packages
from sim.plugins.loader import require_not_loading
from sim.run.process import without_main_module
from sim.studies import tables
from sim.studies.cells import plan
from sim.studies.comparison import Comparison
from sim.studies.index import DONE, FAILED, SweepIndex
from sim.studies.pages import write_comparison
from sim.studies.study import load_study
from sim.studies.sweep import default_jobs, process_executor, run_sweep
from sim.studies.worker import CellOptions


class Sweep:
    """Runs of a sweep, with their states and results."""

    def __init__(self, directory: Path | str) -> None:
        """Raise UserError for a folder without the list of a sweep's runs, or with a damaged one."""
        self.directory = folder_of(directory, "directory")
        """Folder with the list of runs."""
        self._index = SweepIndex.read(self.directory)

    @property
    def runs(self) -> pl.DataFrame:
        """Table with a row for each run: its value on each axis, `seed`, `state`, and `directory` of results.

        Your classes and functions appear by their names, as in `compare`, if the names are unique. The state
        is done, failed or waiting. A run whose method failed, or that diverged, also has results. The results
        of each run are in `sweep.directory.parent / name`, where `name` is its `directory`.
        """
        names = self._index.names
        rows: list[dict[str, Any]] = [
            {axis: str(names[axis].get(value, value)) for axis, value in cell.values.items()}
            | {"seed": cell.seed, "state": cell.state, "directory": cell.directory}
            for cell in self._index.cells
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    @property
    def failed(self) -> dict[str, str]:
        """Reasons for failures, by the description of the run."""
        return {str(cell): cell.error or "" for cell in self._index.cells if cell.state == FAILED}

    def load(self) -> list[Run]:
        """Return the runs whose state is done, in the order of `runs`."""
        done = [cell.directory for cell in self._index.cells if cell.state == DONE]
        return [Run(self.directory.parent / each) for each in done if each is not None]

    def __repr__(self) -> str:
        return f"<Sweep {self.directory.name}: {len(self._index.cells):,} runs>"

    def _repr_html_(self) -> str:
        found: str = self.runs._repr_html_()
        return found


class SweepFailed(RuntimeError):
    """Error: some runs of a sweep failed. The other runs are kept."""

    directory: Path
    """Folder with the list of runs."""

    @property
    def sweep(self) -> Sweep:
        """Sweep with all runs, including those that failed."""
        return Sweep(self.directory)


class Compared:
    """Comparison of runs, with 95% intervals over seeds, as polars data frames."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    @cached_property
    def _frames(self) -> Mapping[str, pl.DataFrame]:
        return tables.csv_frames(self._comparison)

    @property
    def table(self) -> pl.DataFrame:
        """Table with a row for each group of runs and metric: mean, interval, difference, p-values."""
        return self._frames["table"]

    @property
    def target(self) -> pl.DataFrame:
        """Costs of each group until it reached the target; empty without a target."""
        return self._frames["target"]

    @property
    def curves(self) -> pl.DataFrame:
        """Mean and interval of each metric of each group over virtual time."""
        return self._frames["curves"]

    @property
    def runs(self) -> pl.DataFrame:
        """Table with a row for each run: its results, its costs, and its folder (column `directory`).

        This is the folder's name, next to the sweep's own folder or as in the path that you passed.
        """
        return self._frames["runs"]

    @property
    def warnings(self) -> list[str]:
        """Warnings that affect the interpretation: missing runs, different seeds, unequal budgets."""
        return list(self._comparison.warnings)

    def write(self, folder: str | Path) -> Path:
        """Write page, pictures, CSV and LaTeX into a folder, as `coterie compare` does; return the page."""
        require_packages("compare", "compare", "matplotlib")
        return write_comparison(self._comparison, folder_of(folder, "folder"))

    def __repr__(self) -> str:
        groups = f"<Compared {len(self._comparison.groups):,} groups of runs>"
        return "\n".join([groups, *[f"warning: {each}" for each in self.warnings]])

    def _repr_html_(self) -> str:
        warnings = [f"<p>warning: {html.escape(each)}</p>" for each in self.warnings]
        return "".join([self.table._repr_html_(), *warnings])


def sweep(
    scenario: str | Path,
    *,
    set: Mapping[str, Any] | None = None,
    seeds: int | Sequence[int] | None = None,
    only: str | Sequence[str] | Mapping[str, Any] = (),
    full: bool = False,
    jobs: int | None = None,
    together: int = 1,
    out: str | Path = "runs",
    device: str = "auto",
    data_dir: str | Path | None = None,
    quiet: bool = False,
) -> Sweep:
    """Run the `[sweep]` of a scenario, or all combinations of values of keys, with several seeds.

    set: a value, or a list of values to try, by key; None removes a key. seeds: the number of seeds, or a
    list of them. only: ``"axis=value"`` or several of them, or a value or a list of values by axis, to run
    only combinations with these values; a class is given by its name. full: run the full form of a study, not
    the short one. jobs: the number of processes; by default one for each core, or one on a GPU. out, device,
    data_dir: as for `run`. together: the number of runs that differ only in their seeds and are computed
    together in one process, which is faster on a GPU. Runs take place in separate processes, which load a
    class or a function, such as a method, from its file. Finished runs are not repeated. Raises UserError if
    the sweep cannot start, and SweepFailed, with the sweep, if runs failed; the same call tries the failed
    runs again.
    """
    require_not_loading()
    if not isinstance(scenario, str | Path):
        raise UserError("a sweep runs in separate processes: write the scenario to a file, and pass its path")
    overrides, unset = options(set, several=True)
    narrowed = choices_of(only)
    device, scenario = device_of(device), path_of(scenario, "scenario")
    quiet, full = flag_of(quiet, "quiet"), flag_of(full, "full")
    planned = plan(scenario, overrides, unset=unset, seeds=seeds_of(seeds), only=narrowed, full=full)
    at_once = jobs_of(jobs) or default_jobs(planned.threads, device)
    how = CellOptions(None if data_dir is None else folder_of(data_dir, "data_dir"), device, at_once=at_once)
    execute = process_executor(at_once, jobs_of(together, "together") or 1)
    with without_main_module(), SweepStatusLine(Terminal(stderr=True), quiet) as line:
        result = run_sweep(planned, out=folder_of(out, "out"), how=how, execute=execute, show=line.show)
    for notice in () if quiet else planned.notices:
        print(notice, file=sys.stderr)
    for same in result.without_effect:
        print(f"had no effect: {same}", file=sys.stderr)
    if result.errors:
        failed = "\n".join([f"{name}: {reason}" for name, reason in result.errors.items()])
        look = f"coterie.Sweep({str(result.directory)!r})"
        error = SweepFailed(
            f"{len(result.errors):,} of {result.cells:,} runs failed:\n{failed}\n"
            f"{look} lists all runs, as does this error's `sweep`. For the finished runs: "
            f"coterie.compare({look})"
        )
        error.directory = result.directory
        raise error
    return Sweep(result.directory)


def compare(
    *runs: Sweep | Run | str | Path | Sequence[Run | str | Path],
    by: str | None = None,
    baseline: str | None = None,
    metrics: str | Sequence[str] | None = None,
    target: float | None = None,
    clients: Sequence[int] | None = None,
) -> Compared:
    """Compare the runs of a sweep, or single runs.

    by: the axis along which the figures show the results. baseline: "axis=value", the group to compare the
    others with. metrics: names, or paths in the summary such as "graph.l1". target: a quality; the costs
    until it is reached are reported. clients: the only clients to include. Raises UserError.
    """
    each = list(runs[0]) if len(runs) == 1 and isinstance(runs[0], list | tuple) else list(runs)
    if not each:
        raise UserError("nothing to compare: pass a sweep, or some runs")
    target = number_of(target, "target")
    named, axis, beside = texts_of(metrics, "metrics"), text_of(by, "by"), text_of(baseline, "baseline")
    study = load_study([folder_of(what, "runs") for what in each], clients_of(clients))
    return Compared(Comparison(study, metrics=named, by=axis, baseline=beside, target=target))
