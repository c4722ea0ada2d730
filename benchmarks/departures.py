"""Costs of the ten largest departures in a day of spot instances, by ten forks of one run.

`python -m benchmarks.departures --data-dir DIR [--jobs 2] [--whole] [--write]` runs the study
`scenarios/studies/departures.toml`, prints its table, and with `--write` writes the table and the picture
to `docs/studies/`. `--whole` also runs all eleven runs from the start, to measure the savings of forks;
both must give the same results. Results under --out are not run again; their CPU seconds are stored with
them.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring import table
from sim.results.metrics import Series
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView
from sim.scenario.scenario import load_scenario
from sim.studies.cells import Plan, plan
from sim.studies.index import SweepIndex
from sim.studies.sweep import Execute, SweepResult, run_sweep
from sim.studies.worker import CellOptions, CellResult, CellTask, run_cells

ROOT = Path(__file__).parents[1]
STUDY = ROOT / "scenarios/studies/departures.toml"
PAGES = ROOT / "docs/studies"
STAY = (0, 1, 2, 3, 4)
"""Clients that are up all the time."""
CPU = "cpu.json"
HEAD = ("after", "go", "cost, mean", "largest", "CPU, s", "from the start, s")


@dataclass(frozen=True)
class Departure:
    """Cost of some departures.

    at_s: virtual time just before them. gone: number of clients that depart. lost: points of accuracy that
    the run loses against its fork [seconds after], mean over the clients that stay.
    """

    at_s: float
    gone: int
    lost: NDArray[np.float64]


# --- running ------------------------------------------------------------------------------------------------


def timed(task: CellTask) -> tuple[CellResult, float]:
    """Run a cell; return its result and its CPU seconds."""
    started = time.process_time()
    [ran] = run_cells([task])
    return ran, time.process_time() - started


def in_processes(jobs: int, seconds: dict[str, float]) -> Execute:
    """Return an executor of tasks in `jobs` processes that records the CPU seconds of each by its cell."""

    def execute(
        tasks: list[CellTask], ran: Callable[[CellTask, CellResult], None], look: Callable[..., None]
    ) -> None:
        with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_load) as pool:
            futures = {pool.submit(timed, task): task for task in tasks}
            for future in as_completed(futures):
                task = futures[future]
                result, seconds[task.cell.key] = future.result()
                print(f"{dict(task.cell.values)}: {seconds[task.cell.key]:.1f} s of CPU", file=sys.stderr)
                ran(task, result)

    return execute


def _load() -> None:
    """Load the modules that every run needs, so that no run's time includes them."""
    import sim.run.running  # noqa: F401


def ran(planned: Plan, out: Path, data_dir: Path | None, jobs: int) -> tuple[SweepResult, dict[str, float]]:
    """Return the study's results under `out`, and the CPU seconds by cell."""
    kept = out / CPU
    seconds: dict[str, float] = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    how = CellOptions(data_dir=data_dir, device="cpu")
    result = run_sweep(planned, out=out, how=how, execute=in_processes(jobs, seconds))
    kept.write_text(json.dumps(seconds), encoding="utf-8")
    if result.errors:
        raise SystemExit(f"runs failed: {dict(result.errors)}")
    return result, seconds


def runs_of(result: SweepResult) -> list[RunDirectory]:
    """Return the results of all cells, in order."""
    found = [cell.directory for cell in SweepIndex.read(result.directory).cells]
    return [RunDirectory.load(result.directory.parent / name) for name in found if name is not None]


# --- what it comes to ---------------------------------------------------------------------------------------


def departures(planned: Plan, runs: list[RunDirectory]) -> list[Departure]:
    """Return the departure of each fork; the first run is the unchanged one."""
    views = [RunView(run) for run in runs]
    found = []
    for cell, view in zip(planned.cells[1:], views[1:], strict=True):
        assert cell.fork_s is not None
        change = load_scenario(planned.file, cell.overrides, cell.seed).change[0]
        assert change.churn is not None
        until_s = change.at + change.churn.stay
        moves = [
            [m for m in each.moves if m.event == "crash" and change.at < m.time_s <= until_s]
            for each in (views[0], view)
        ]
        assert not moves[1], "they stay"
        curves = [_mean(each, change.at) for each in (views[0], view)]
        common = np.intersect1d(curves[0].times, curves[1].times)  # without the end of one run
        here, there = (each.values[np.isin(each.times, common)] for each in curves)
        found.append(Departure(cell.fork_s, len(moves[0]), 100 * (there - here)))
    return found


def _mean(view: RunView, after_s: float) -> Series:
    """Return the mean accuracy of the clients that stay, at the evaluations after a virtual time."""
    panel = view.panel("accuracy")
    assert panel is not None
    later = panel.times > after_s
    return Series(panel.times[later], panel.values[later][:, list(STAY)].mean(axis=1))


def rows_of(
    found: list[Departure], planned: Plan, forks: dict[str, float], whole: dict[str, float]
) -> list[list[str]]:
    """Return the table, with a row for each departure."""
    return [
        [
            f"{departure.at_s:g} s",
            f"{departure.gone}",
            f"{departure.lost.mean():+.2f}",
            f"{departure.lost.max():+.1f}",
            f"{forks[cell.key]:.1f}",
            f"{whole[cell.key]:.1f}" if cell.key in whole else "",
        ]
        for departure, cell in zip(found, planned.cells[1:], strict=True)
    ]


def picture(found: list[Departure], file: Path) -> None:
    """Draw the course of each departure, and their mean with its 95% interval."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot
    from scipy.stats import t

    style: Any = {"svg.hashsalt": "coterie", "svg.fonttype": "none", "font.size": 9, "legend.frameon": False}
    with pyplot.rc_context(style | {"axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = pyplot.subplots(figsize=(7, 3.4), layout="constrained")
        courses = np.array([departure.lost for departure in found])
        seconds = np.arange(1, courses.shape[1] + 1)
        mean, count = courses.mean(axis=0), len(courses)
        half = t.ppf(0.975, count - 1) * courses.std(axis=0, ddof=1) / np.sqrt(count)
        for course in courses:
            axes.plot(seconds, course, color="#999999", linewidth=0.6)
        axes.fill_between(seconds, mean - half, mean + half, color="#0072b2", alpha=0.2, linewidth=0)
        axes.plot(seconds, mean, color="#0072b2", linewidth=2, label=f"mean of {count}, 95% interval")
        axes.axhline(0, color="#000000", linewidth=0.6)
        axes.set_xlabel("seconds after the departure")
        axes.set_ylabel("points of accuracy lost")
        axes.legend(loc="upper left")
        figure.savefig(file, metadata={"Date": None})
        pyplot.close(figure)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/departures"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    planned = plan(STUDY)
    result, forks = ran(planned, given.out / "forks", given.data_dir, given.jobs)
    runs = runs_of(result)
    whole: dict[str, float] = {}
    if given.whole:
        alone = replace(planned, cells=tuple([replace(c, parent=None, fork_s=None) for c in planned.cells]))
        others, whole = ran(alone, given.out / "whole", given.data_dir, given.jobs)
        for run, other in zip(runs, runs_of(others), strict=True):
            assert run.summary()["trace_hash"] == other.summary()["trace_hash"], run.path
        sums = [sum(seconds[cell.key] for cell in planned.cells) for seconds in (forks, whole)]
        print(f"CPU: {sums[0]:.0f} s with forks, {sums[1]:.0f} s from the start, {sums[0] / sums[1]:.0%}")
    found = departures(planned, runs)
    rows = rows_of(found, planned, forks, whole)
    print(f"unchanged run: {forks[planned.cells[0].key]:.1f} s of CPU")
    means = np.array([departure.lost.mean() for departure in found])
    print(f"mean cost {means.mean():+.2f} points, standard error {means.std(ddof=1) / len(means) ** 0.5:.2f}")
    print(table(HEAD, rows))
    if given.write:
        with (PAGES / "departures.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEAD, *rows])
        picture(found, PAGES / "departures.svg")


if __name__ == "__main__":
    main()
