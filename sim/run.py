"""From a resolved scenario to a result directory: a function without globals."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import torch

from sim.alone import record_ending, train_alone
from sim.build.simulation import build
from sim.learning.engine.memory import explained
from sim.learning.engine.precision import tensor_cores
from sim.progress import ALONE, WRITING, Show, Watcher
from sim.results.report import write_report
from sim.results.store import RunDirectory
from sim.results.trace import first_difference
from sim.scenario import Scenario, digest, to_toml
from sim.simulation import Simulation
from sim.summary import summarise
from sim.unawaited import noticed
from sim.world.clock import Deadlock

Result = TypeVar("Result")


@dataclass(frozen=True)
class RunResult:
    """Where the results are, and what is in summary.json."""

    directory: Path
    summary: dict[str, Any]
    interrupted: bool


def run_scenario(
    scenario: Scenario,
    *,
    out: Path = Path("runs"),
    device: str = "auto",
    data_dir: Path | None = None,
    progress: Show | None = None,
    log: Callable[[str], None] | None = None,
) -> RunResult:
    """Run a scenario and write its result directory under `out`.

    An interrupt (Ctrl-C) ends the run early and leaves a valid directory. Raises UserError for what can't be
    run, and Deadlock when every client waits for ever; the directory is written before that, too, and named
    in a note.
    """
    started = time.perf_counter()
    with _quiet_collector(), _one_thread(), tensor_cores(scenario.engine.precision):
        simulation = build(scenario, data_dir, device)
        with closing(simulation):
            scenario = simulation.scenario  # with what was decided: running it again gives the same directory
            assert scenario.engine.threads != "fastest", "measured by now"
            torch.set_num_threads(scenario.engine.threads)
            directory = RunDirectory.create(out, scenario.name, scenario.run.seed, digest(scenario))
            try:
                watcher = _watch(simulation, progress, started, log)
                with explained("an evaluation of all models", simulation.engine.device):
                    return _run(simulation, directory, watcher)
            except BaseException:
                directory.discard()  # no effect on results that are complete
                raise


def _run(simulation: Simulation, directory: RunDirectory, watcher: Watcher) -> RunResult:
    """Run to the end, and write the results; raises Deadlock after that."""
    deadlock: Deadlock | None = None
    with _Interrupts() as interrupts, noticed() as unawaited:
        alone = None
        try:
            interrupts.run(simulation)
            if simulation.scenario.run.compare_alone and not interrupts.seen:
                watcher.enter(ALONE)
                alone = interrupts.attempt(train_alone, simulation)
        except Deadlock as error:
            deadlock = error
        record_ending(simulation, alone)
        interrupted = interrupts.seen
        watcher.enter(WRITING)
        summary = summarise(simulation, alone, watcher.elapsed_s, interrupted)
        summary["warnings"] = unawaited
        if deadlock is not None:
            summary["deadlock"] = str(deadlock)
        _write(directory, simulation, summary)
    if deadlock is not None:
        for warning in unawaited:
            deadlock.add_note(f"warning: {warning}")
        deadlock.add_note(f"the results up to then are in {directory.path}")
        raise deadlock
    return RunResult(directory.path, summary, interrupted)


def verify(
    scenario: Scenario, result: RunResult, *, device: str = "auto", data_dir: Path | None = None
) -> str | None:
    """Run once more, in a new process with another hash seed; describes the first difference, None if none.

    A process of its own shows what a second run in this one would hide: anything that depends on the order of
    sets, on addresses or on state left over.
    """
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder)
        command = [sys.executable, "-m", "sim.cli", "run", str(result.directory / "scenario.toml"), "--quiet"]
        command += ["--out", str(again), "--device", device, "--set", "run.compare_alone=false"]
        command += ["--data-dir", str(data_dir)] if data_dir is not None else []
        seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
        done = subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=False
        )
        # A failed run, too, has results to compare.
        found = [path for path in again.iterdir() if (path / "summary.json").is_file()]
        if len(found) != 1:
            return f"it ended with exit code {done.returncode} and left no results:\n{done.stderr.strip()}"
        second = RunDirectory.load(found[0])
        if second.summary()["trace_hash"] == result.summary["trace_hash"]:
            return None
        first = RunDirectory.load(result.directory)
        difference = first_difference(
            first.scan("events").collect().to_arrow(), second.scan("events").collect().to_arrow()
        )
        return difference or "the hashes differ, in messages that run.keep_messages = false did not keep"


class _Interrupts:
    """While this is entered, the first Ctrl-C ends the simulation that is running, after the present event.

    So no event is cut in two, and what was measured is consistent and can still be written, which the first
    Ctrl-C does not stop. A second one is a KeyboardInterrupt as usual. Only the main thread may set signal
    handlers, and only it is interrupted.
    """

    def __init__(self) -> None:
        self.seen = False
        self._at_once = False
        self._simulation: Simulation | None = None
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def run(self, simulation: Simulation) -> None:
        """Run to the end, or to the first Ctrl-C."""
        self._simulation = simulation
        simulation.run()

    def attempt(self, function: Callable[[Simulation], Result], simulation: Simulation) -> Result | None:
        """Call a function that changes nothing: the first Ctrl-C breaks it off at once, for None."""
        self._at_once = True
        try:
            return function(simulation)
        except KeyboardInterrupt:
            return None
        finally:
            self._at_once = False

    def _handle(self, number: int, frame: object) -> None:
        before, self.seen = self.seen, True
        if before or self._at_once:
            raise KeyboardInterrupt
        if self._simulation is not None and self._simulation.loop.is_running():
            self._simulation.loop.stop()


# --- while it runs ------------------------------------------------------------------------------------------


def _watch(
    simulation: Simulation, show: Show | None, started: float, log: Callable[[str], None] | None
) -> Watcher:
    """Collect garbage at evaluations, and show how far the run is."""
    watcher = Watcher(simulation, show, started)

    def evaluated() -> None:
        gc.collect()
        watcher.evaluated()

    simulation.on_log = log
    simulation.on_evaluated = evaluated
    return watcher


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Collect cyclic garbage at evaluations only.

    When it is found decides which pending work is still wanted, hence what a batch consists of, hence the
    last bits of its results; so it must not depend on how many objects other code happens to allocate.
    """
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    gc.freeze()  # what exists now is not looked at again: collections during the run stay short
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread, until told otherwise, and afterwards with as many as before.

    As many as there are cores would make the last bits of all sums hang on the machine. They also wait for
    each other at every call, however small: beside other work a hundred times as long as one thread takes.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _write(directory: RunDirectory, simulation: Simulation, summary: dict[str, Any]) -> None:
    directory.write_scenario(to_toml(simulation.scenario))
    directory.write_metrics(simulation.metrics)
    directory.write_events(simulation.trace)
    directory.write_intervals(simulation.intervals())
    directory.write_summary(summary)
    write_report(directory)
    directory.finalise()
