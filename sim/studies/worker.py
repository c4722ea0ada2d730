"""Worker of a sweep: runs cells in a separate process, one at a time or several together."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import TYPE_CHECKING

from sim.errors import UserError
from sim.results.outcome import main_problems
from sim.run.save.progress import Progress
from sim.run.save.provenance import package_version
from sim.studies.cells import SweepCell
from sim.studies.index import CellMark

if TYPE_CHECKING:
    from sim.run.options import RunOptions
    from sim.run.running import RunResult
    from sim.run.together import JointRunHook
    from sim.scenario.scenario import Scenario

_ERROR_LENGTH = 2_000


@dataclass(frozen=True)
class CellOptions:
    """Options with which the cells of a sweep are run.

    reports: whether to keep report.html. checkpoints: whether to keep the checkpoint of each run's end and
    the checkpoints from which forks continued. at_once: number of runs that share the machine's cores; None
    for one run per core.
    """

    data_dir: Path | None = None
    device: str = "auto"
    code: bool = True
    reports: bool = False
    checkpoints: bool = False
    at_once: int | None = None


@dataclass(frozen=True)
class CellTask:
    """A cell to run. out: the parent of its results folder.

    checkpoints_s: virtual times at which other cells fork from it. parent: results folder in `out` of the
    parent run, if the cell is a fork.
    """

    file: Path
    cell: SweepCell
    out: Path
    how: CellOptions
    checkpoints_s: tuple[float, ...] = ()
    parent: str | None = None


@dataclass(frozen=True)
class CellResult:
    """The result of a cell: the name of its results folder, and the error if it failed."""

    directory: str | None
    error: str | None = None


def run_cells(
    tasks: Sequence[CellTask], shares: MutableSequence[float] | None = None, slot: int = 0
) -> list[CellResult]:
    """Run cells of one sweep, several of them together; see `sim.run.together`.

    Errors are returned, not raised. shares[slot + n] is set to the completed share of cell number n.
    """
    from sim.run.process import cores, shared_cores
    from sim.run.together import run_together

    with shared_cores(tasks[0].how.at_once or cores()):
        if len(tasks) == 1:
            return [_run_cell(None, tasks[0], shares, slot)]
        runs = [partial(_run_cell, task=task, shares=shares, slot=slot + n) for n, task in enumerate(tasks)]
        return run_together(runs)


def _run_cell(
    seat: JointRunHook | None, task: CellTask, shares: MutableSequence[float] | None, slot: int
) -> CellResult:
    from sim.kernel.clock import Deadlock
    from sim.run.options import RunOptions
    from sim.run.running import run_scenario
    from sim.scenario.resolved import digest
    from sim.scenario.scenario import load_scenario

    def show(progress: Progress) -> None:
        if shares is not None:
            shares[slot] = max([share for share in progress.shares if share is not None], default=0.0)

    cell, how = task.cell, task.how
    try:
        scenario = load_scenario(task.file, cell.overrides, cell.seed, unset=cell.unset, code=how.code)
        if digest(scenario) != cell.key:
            raise UserError(
                "the scenario or a file of its code changed during the sweep; start the sweep again",
                task.file,
            )
        options = RunOptions(
            out=task.out,
            overwrite=True,
            device=how.device,
            data_dir=how.data_dir,
            progress=show,
            checkpoint_at_end=how.checkpoints,
            report=how.reports,
            checkpoints_s=task.checkpoints_s,
            seat=seat if scenario.engine.devices is None else None,
        )
        result = _run_fork(task, scenario, options) or run_scenario(scenario, options)
    except (UserError, Deadlock) as error:
        return CellResult(None, str(error)[:_ERROR_LENGTH])
    except Exception as error:
        return CellResult(None, f"{type(error).__name__}: {error}"[:_ERROR_LENGTH])
    if result.directory is None or result.unwritten:
        return CellResult(None, "; ".join(["not all results could be written", *result.unwritten]))
    try:
        finished = result.summary["finished"]
        CellMark(cell=cell.key, coterie=package_version("coterie"), finished=finished).write(result.directory)
    except OSError as error:
        return CellResult(None, f"{error.filename}: {error.strerror}")
    why = None if finished else "; ".join(main_problems(result.summary)) or "the run was interrupted"
    return CellResult(result.directory.name, why)


def _run_fork(task: CellTask, scenario: Scenario, options: RunOptions) -> RunResult | None:
    """Run a fork from a checkpoint of its parent; None if it has to run from the start."""
    from sim.run.resume.resuming import ResumableRun
    from sim.run.running import run_scenario

    if task.parent is None:
        return None
    try:
        earlier = ResumableRun.find(task.out / task.parent, task.cell.fork_s)
        return run_scenario(scenario, options, earlier=earlier)
    except UserError:
        return None


def run_received_tasks(tasks: connection.Connection, shares: MutableSequence[float], slot: int) -> None:
    """Run the groups of tasks received over a connection and send the results back, until it is closed.

    slot: index of the first of their entries in `shares`. The parent process handles the terminal's signals.
    """
    from sim.learning.data.kept import keeping_last_data

    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with keeping_last_data():
        while True:
            try:
                group = tasks.recv()
            except EOFError:
                return
            tasks.send(run_cells(group, shares, slot))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
