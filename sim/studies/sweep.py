"""Execution of a sweep: runs all cells without results in several processes."""

import math
import multiprocessing
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sim.errors import UserError
from sim.results.report.html import share_script
from sim.results.store.output_dir import CELL, REPORT, checkpoints
from sim.results.store.run_directory import load_checked
from sim.run.process import cores, without_current_folder
from sim.run.save.provenance import package_version
from sim.run.save.watcher import RemainingTimeEstimate
from sim.studies.cells import Plan, SweepCell
from sim.studies.index import (
    DONE,
    FAILED,
    INDEX,
    WAITING,
    CellHead,
    CellMark,
    IndexedCell,
    State,
    SweepHead,
    SweepIndex,
)
from sim.studies.without_effect import values_without_effect
from sim.studies.worker import CellOptions, CellResult, CellTask, run_received_tasks

POLL_S = 0.5
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class SweepProgress:
    """Progress of a sweep.

    finished_before: cells that were done before. running: completed share of each running cell. elapsed_s:
    wall-clock time. remaining_s: estimate of the remaining wall-clock time, None while unknown.
    """

    cells: int
    finished_before: int
    done: int
    failed: int
    running: tuple[float, ...]
    elapsed_s: float
    remaining_s: float | None = None

    @property
    def share(self) -> float:
        """Completed share of the cells that were not finished before."""
        todo = self.cells - self.finished_before
        return (self.done + self.failed + sum(self.running)) / todo if todo else 1.0


@dataclass(frozen=True)
class SweepResult:
    """Outcome of a sweep. directory: folder of its index. finished_before: cells with earlier results."""

    directory: Path
    cells: int
    finished_before: int
    errors: Mapping[str, str]
    """Errors of failed cells, by the cell's description."""
    without_effect: tuple[str, ...] = ()
    """Descriptions of values without effect."""
    failed: Mapping[str, CellResult] = field(default_factory=dict)
    """Results of failed cells, by their keys."""


AddResult = Callable[[CellTask, CellResult], None]
ShowRunning = Callable[[tuple[float, ...]], None]
Execute = Callable[[list[CellTask], AddResult, ShowRunning], None]
"""Runs tasks, and calls back with the result of each and periodically with the running tasks' progress."""


def run_sweep(
    plan: Plan,
    *,
    out: Path = Path("runs"),
    how: CellOptions | None = None,
    execute: Execute | None = None,
    show: Callable[[SweepProgress], object] = lambda progress: None,
    failed: Mapping[str, CellResult] | None = None,
) -> SweepResult:
    """Run the cells of a sweep that have no finished results of this version in `out`.

    The results of each cell go to a separate folder in `out`, like those of a single run. The index
    `<out>/<name>-sweep-<hash>/sweep.json` is updated during the sweep. A failed cell does not affect other
    cells, and the next call tries it again. Forks run after their parents, and the parents' checkpoints are
    removed at the end unless `how` keeps them or a cell failed. Raises UserError if `out` cannot be written.

    failed: results of cells that failed in an earlier call and must not be tried again, by their keys.
    """
    index, how = _Index(plan, out, failed or {}), how or CellOptions()
    tasks = {cell.key: cell for cell in plan.cells if index.state(cell.key) == WAITING}
    finished_before = sum(cell.key in index.found for cell in plan.cells)
    # Runs differ, and the virtual time of one run may pass unevenly: only the whole sweep has a steady pace.
    started_s, pace = time.perf_counter(), RemainingTimeEstimate(math.inf)
    index.write()

    def show_running(running: tuple[float, ...]) -> None:
        states = Counter(index.state(cell.key) for cell in plan.cells)
        elapsed_s = time.perf_counter() - started_s
        done, failed = states[DONE] - finished_before, states[FAILED]
        progress = SweepProgress(len(plan.cells), finished_before, done, failed, running, elapsed_s)
        show(replace(progress, remaining_s=pace.remaining_s(elapsed_s, progress.share)))

    def ran(task: CellTask, result: CellResult) -> None:
        if how.reports and result.directory is not None:
            with suppress(OSError):  # else the report keeps its own script
                share_script(out / result.directory / REPORT)
        index.add(task.cell.key, result)
        index.write()

    execute = execute or process_executor(default_jobs(plan.threads, how.device))
    forks_s = _fork_times(tasks.values())
    for is_fork in (False, True):
        chosen = [cell for cell in tasks.values() if (cell.parent is not None) == is_fork]
        if chosen or not is_fork:
            todo = [
                CellTask(
                    plan.file, cell, out, how, forks_s.get(cell.key, ()), index.found.get(cell.parent or "")
                )
                for cell in chosen
            ]
            execute(todo, ran, show_running)
    if not (how.checkpoints or index.errors):
        for parent in {cell.parent for cell in plan.cells if cell.parent is not None}:
            for file in checkpoints(out / index.found[parent]):  # from which forks continued
                with suppress(OSError):
                    file.unlink(missing_ok=True)
    errors = index.errors
    failures = {str(cell): errors[cell.key] for cell in plan.cells if cell.key in errors}
    done = [(cell, out / index.found[cell.key]) for cell in plan.cells if cell.key in index.found]
    same = tuple(values_without_effect(done))
    return SweepResult(index.directory, len(plan.cells), finished_before, failures, same, index.failed)


def _fork_times(cells: Iterable[SweepCell]) -> dict[str, tuple[float, ...]]:
    """Return the virtual times (s) at which other cells fork from a cell, by its key."""
    found: dict[str, set[float]] = {}
    for cell in cells:
        if cell.parent is not None and cell.fork_s is not None:
            found.setdefault(cell.parent, set()).add(cell.fork_s)
    return {key: tuple(sorted(times)) for key, times in found.items()}


def default_jobs(threads: int, device: str) -> int:
    """Return the number of processes: cores divided by the `threads` of a run; one on a CUDA device.

    Several runs on one GPU would compete for its memory.
    """
    from sim.run.setup.engine import choose_device  # imports torch

    if device != "cpu" and choose_device(device).type == "cuda":
        return 1
    return max(1, cores() // threads)


# --- existing results ---------------------------------------------------------------------------------------


class _Index:
    """The index of all cells on disk, with the results and errors found so far."""

    def __init__(self, plan: Plan, out: Path, failed: Mapping[str, CellResult]) -> None:
        self._plan = plan
        self.directory = out / plan.folder
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for name, content in plan.files.items():
                _write(self.directory / name, content)
        except OSError as error:
            raise UserError(f"cannot write results to {out}: {error.strerror}") from error
        self.found = finished_folders(out, {cell.key for cell in plan.cells})
        self.failed = {key: result for key, result in failed.items() if key not in self.found}

    def add(self, key: str, ran: CellResult) -> None:
        if ran.error is None and ran.directory is not None:
            self.found[key] = ran.directory
            self.failed.pop(key, None)
        else:
            self.failed[key] = ran

    @property
    def errors(self) -> dict[str, str]:
        return {key: ran.error or "the run left no results" for key, ran in self.failed.items()}

    def state(self, key: str) -> State:
        return DONE if key in self.found else FAILED if key in self.failed else WAITING

    def write(self) -> None:
        cells, errors = [], self.errors
        folders = {key: ran.directory for key, ran in self.failed.items()} | self.found
        for cell in self._plan.cells:
            directory, error = folders.get(cell.key), errors.get(cell.key)
            outcome = dict(state=self.state(cell.key), directory=directory, error=error)
            cells.append(IndexedCell(**_common_fields(cell, CellHead) | outcome))
        try:
            SweepIndex(**_common_fields(self._plan, SweepHead), cells=tuple(cells)).write(self.directory)
        except OSError as error:
            raise UserError(f"cannot write {self.directory / INDEX}: {error.strerror}") from error


def _write(path: Path, content: bytes) -> None:
    """Write a file unless it has this content already; another sweep may be reading it."""
    if not (path.is_file() and path.read_bytes() == content):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _common_fields(of: BaseModel, kind: type[BaseModel]) -> dict[str, Any]:
    """Return the values of the fields of a model that the class `kind` also has."""
    return {name: getattr(of, name) for name in kind.model_fields}


def finished_folders(out: Path, keys: set[str]) -> dict[str, str]:
    """Return the folders in `out` with finished results of these cells by this version, by the cells' keys.

    All files are checked; cells with damaged results run again.
    """
    found, version = {}, package_version("coterie")
    for mark in sorted(out.glob(f"[!.]*/{CELL}")):
        with suppress(UserError):
            cell = CellMark.read(mark.parent)
            if cell.cell in keys and cell.finished and cell.coterie == version:
                load_checked(mark.parent)
                found[cell.cell] = mark.parent.name
    return found


# --- processes ----------------------------------------------------------------------------------------------


def process_executor(jobs: int, together: int = 1) -> Execute:
    """Run tasks in `jobs` processes. If a process dies, only its cells fail.

    together: largest number of cells that differ only in their seeds and compute together in a process.
    """

    def execute(tasks: list[CellTask], ran: AddResult, show_running: ShowRunning) -> None:
        groups = deque(_groups(tasks, min(together, -(-len(tasks) // jobs))))
        size, count = max(map(len, groups), default=1), min(jobs, len(groups))
        shares = _SPAWN.RawArray("d", max(1, count * size))
        workers = [_Worker(shares, slot * size) for slot in range(count)]
        try:
            while True:
                for worker in workers:
                    if not worker.tasks and groups:
                        worker.start(groups.popleft())
                busy = {worker.ours: worker for worker in workers if worker.tasks}
                show_running(tuple(share for worker in busy.values() for share in worker.shares))
                if not busy:
                    return
                for ready in connection.wait(list(busy), POLL_S):
                    for task, result in busy[ready].results():  # type: ignore[index]
                        ran(task, result)
        finally:
            for worker in workers:
                worker.end()

    return execute


def _groups(tasks: Iterable[CellTask], most: int) -> list[list[CellTask]]:
    """Return the tasks in groups of up to `most` that differ only in their seeds; forks are alone."""
    groups: list[list[CellTask]] = []
    for task in tasks:
        last = groups[-1][-1].cell if groups else None
        alike = last is not None and (last.overrides, last.unset) == (task.cell.overrides, task.cell.unset)
        if alike and task.parent is None and len(groups[-1]) < most:
            groups[-1].append(task)
        else:
            groups.append([task])
    return groups


class _Worker:
    """A process that runs groups of tasks, started again after it dies.

    slot: index of its first entry in `shares`.
    """

    def __init__(self, shares: Any, slot: int) -> None:
        self.tasks: list[CellTask] = []
        self._shares, self._slot = shares, slot
        self._spawn()

    @property
    def shares(self) -> list[float]:
        """Completed share of each running task."""
        return list(self._shares[self._slot : self._slot + len(self.tasks)])

    def _spawn(self) -> None:
        self.ours, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(
            target=run_received_tasks, args=(theirs, self._shares, self._slot), daemon=True
        )
        with without_current_folder():
            self._process.start()
        theirs.close()  # so that `ours` signals the end of the process

    def start(self, tasks: list[CellTask]) -> None:
        if not self._process.is_alive():
            self._spawn()
        self.tasks = tasks
        self._shares[self._slot : self._slot + len(tasks)] = [0.0] * len(tasks)
        with suppress(OSError):  # the process just died, which `results` finds
            self.ours.send(tasks)

    def results(self) -> list[tuple[CellTask, CellResult]]:
        """Wait for the tasks, and return each with its result."""
        tasks, self.tasks = self.tasks, []
        try:
            return list(zip(tasks, self.ours.recv(), strict=True))
        except (EOFError, OSError):
            self._process.join()
            died = CellResult(None, f"the worker process ended with exit code {self._process.exitcode}")
            return [(task, died) for task in tasks]

    def end(self) -> None:
        self._process.kill()
        self._process.join()
