"""One run of a sweep, and a process that does one after the other."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import MutableSequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import UserError
from sim.results.outcome import headlines
from sim.results.place import REPORT
from sim.run.progress import Progress
from sim.run.provenance import version_of
from sim.studies.cells import SweepCell

if TYPE_CHECKING:
    from sim.run.running import RunResult
    from sim.scenario.scenario import Scenario

CELL = "cell.json"
"""In a result directory: of which cell it is, by which version."""
SPENT_BYTES = 2**31
_ERROR_LENGTH = 2_000


@dataclass(frozen=True)
class Task:
    """A cell, and where and how it is run. reports: whether to keep report.html. checkpoints: whether to keep
    one of the end.

    checkpoints_s: virtual times at which others fork from it. parent: the directory in `out` of the run that
    it is a fork of.
    """

    file: Path
    cell: SweepCell
    out: Path
    data_dir: Path | None = None
    device: str = "auto"
    code: bool = True
    reports: bool = False
    checkpoints: bool = False
    checkpoints_s: tuple[float, ...] = ()
    parent: str | None = None


@dataclass(frozen=True)
class Ran:
    """What came of a cell: the name of its result directory, and why it failed, if it did."""

    directory: str | None
    error: str | None = None


def run_cell(task: Task, shares: MutableSequence[float] | None = None, slot: int = 0) -> Ran:
    """Run one cell; whatever goes wrong is returned. shares[slot]: how much of it is done, up to 1."""
    from sim.kernel.clock import Deadlock
    from sim.run.running import run_scenario
    from sim.scenario.resolved import digest
    from sim.scenario.scenario import load_scenario

    def show(progress: Progress) -> None:
        if shares is not None:
            shares[slot] = max([share for share in progress.shares if share is not None], default=0.0)

    cell = task.cell
    try:
        scenario = load_scenario(task.file, cell.overrides, cell.seed, unset=cell.unset, code=task.code)
        if digest(scenario) != cell.key:
            raise UserError(
                "the scenario, or a file of its code, was changed while the sweep went on", task.file
            )
        settings: dict[str, Any] = {
            "out": task.out,
            "overwrite": True,
            "device": task.device,
            "data_dir": task.data_dir,
            "progress": show,
            "checkpoint_at_end": task.checkpoints,
            "checkpoints_s": task.checkpoints_s,
        }
        result = _went_on(task, scenario, settings) or run_scenario(scenario, **settings)
    except (UserError, Deadlock) as error:
        return Ran(None, str(error)[:_ERROR_LENGTH])
    except Exception as error:
        return Ran(None, f"{type(error).__name__}: {error}"[:_ERROR_LENGTH])
    if result.directory is None or result.unwritten:
        return Ran(None, "; ".join(["not all results could be written", *result.unwritten]))
    try:
        if not task.reports:
            (result.directory / REPORT).unlink(missing_ok=True)
        mark = {"cell": cell.key, "coterie": version_of("coterie"), "finished": result.summary["finished"]}
        (result.directory / CELL).write_text(json.dumps(mark) + "\n", encoding="utf-8")
    except OSError as error:
        return Ran(None, f"{error.filename}: {error.strerror}")
    why = None if result.summary["finished"] else "; ".join(headlines(result.summary)) or "it was interrupted"
    return Ran(result.directory.name, why)


def _went_on(task: Task, scenario: Scenario, settings: dict[str, Any]) -> RunResult | None:
    """What came of a fork; None where it cannot go on from another run, and is to be run from the start."""
    from sim.run.resuming import Earlier
    from sim.run.running import run_scenario

    if task.parent is None:
        return None
    try:
        earlier = Earlier.find(task.out / task.parent, task.cell.fork_s)
        return run_scenario(scenario, earlier=earlier, **settings)
    except UserError:
        return None


def serve(tasks: connection.Connection, shares: MutableSequence[float], slot: int) -> None:
    """Run what comes through `tasks`, and send back what came of it, until the other end is closed.

    Sent along is whether this process should go: it has held more than `SPENT_BYTES`, and little of that
    goes back to the system, so that the next run's would lie beside it.

    Signals of the terminal are for the process that began this one; with that, this one ends.
    """
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            task = tasks.recv()
        except EOFError:
            return
        tasks.send((run_cell(task, shares, slot), peak_memory_bytes() > SPENT_BYTES))


def peak_memory_bytes() -> int:
    """The most memory that this process has held; 0 where the system does not tell.

    By the memory's own mark, where the system has one: that of the process (`ru_maxrss`) begins, on Linux, at
    what the process that started it held at that moment.
    """
    with suppress(OSError, StopIteration), open("/proc/self/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    try:
        import resource
    except ImportError:  # on Windows
        return 0
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held if sys.platform == "darwin" else held * 1024


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
