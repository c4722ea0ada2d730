"""Runs of a scenario, from the start or from a checkpoint to a result directory."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from actors.message import describe
from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.files.journal import Journal
from sim.kernel.clock import Deadlock
from sim.learning.engine.memory import explaining_out_of_memory
from sim.learning.engine.replay_log import RecordedReadLog
from sim.results.outcome import why_failed
from sim.results.store.output_dir import CHECKPOINT, READS
from sim.results.store.run_directory import RunDirectory
from sim.run.code_warnings import warnings_about_code, warnings_about_results
from sim.run.collection import GarbageCollection
from sim.run.interrupts import Interrupts
from sim.run.local_baseline import record_final_metrics, train_alone
from sim.run.options import DEFAULT, RunOptions
from sim.run.resume.checkpoint import Checkpointer
from sim.run.resume.resuming import ResumableRun, parent_quality_after_fork
from sim.run.save.evaluation_callback import EvaluationCallback
from sim.run.save.progress import ALONE, WRITING
from sim.run.save.progress_file import saving_progress
from sim.run.save.saving import RunResult, create_directory, save
from sim.run.save.watcher import ProgressWatcher
from sim.run.setup.builder import SIMULATED, PreparedRun, building_process
from sim.run.summary import summarise
from sim.run.watchdog import Watchdog
from sim.scenario.scenario import Scenario


def run_scenario(
    scenario: Scenario, options: RunOptions = DEFAULT, *, earlier: ResumableRun | None = None
) -> RunResult:
    """Run a scenario and write its result directory.

    earlier: a run of this scenario, or one with the same prefix; this run continues from its checkpoint.
    A signal (Ctrl-C, SIGTERM, SIGHUP) ends the run early and leaves a valid directory; a second signal ends
    it immediately: the process of a command ends, and other processes raise `Interrupted`. Raises UserError
    for an invalid scenario, or one that cannot continue exactly, and Deadlock if every client waits forever.
    If an error ends a run that has metrics, the results are written first, and a note of the error names
    their directory.
    """
    started_s, started_cpu_s = time.perf_counter(), _cpu_s(options)
    if earlier is not None and earlier.checkpoint is not None:
        started_s -= earlier.checkpoint.wall_s
    interrupts, where = Interrupts(), (options.data_dir, options.device)
    classes = SIMULATED if options.seat is None else replace(SIMULATED, engine=options.seat.engine)
    with interrupts.answered(), building_process(scenario, *where, classes, options.workers) as run:
        if options.notice is not None:
            for line in run.notices:
                options.notice(line)
        if earlier is not None:
            _require_exact(earlier, run, options)
        torch.set_num_threads(run.threads)
        with _directory_of(run, options, earlier, interrupts) as directory:
            result = _RunOfScenario(
                run, options, earlier, interrupts, directory, started_s, started_cpu_s
            ).result()
    return replace(result, signal=interrupts.number)


def _require_exact(earlier: ResumableRun, run: PreparedRun, options: RunOptions) -> None:
    """Raise UserError for a run that cannot continue exactly, unless `anyway` is set."""
    if not (changed := earlier.differences(run)):
        return
    if not options.anyway:
        raise UserError(
            f"{earlier.path} cannot continue exactly: {'; '.join(changed)}; pass --anyway to continue"
        )
    if options.notice is not None:
        options.notice(f"no longer exact: {'; '.join(changed)}")


@contextmanager
def _directory_of(
    run: PreparedRun, options: RunOptions, earlier: ResumableRun | None, interrupts: Interrupts
) -> Iterator[RunDirectory]:
    """Return the hidden directory of a run, which is removed if an error leaves no results in it."""
    scenario, engine = run.scenario, run.simulation.engine
    directory = create_directory(
        scenario,
        options.out,
        str(engine.device),
        options.overwrite,
        made=run.made_by,
        fork=None if earlier is None else earlier.fork,
        parent=parent_quality_after_fork(earlier),
    )
    interrupts.on_abandoned = directory.discard
    try:
        yield directory
    except BaseException:
        directory.discard()  # no effect on results that are complete
        raise
    finally:
        engine.read_log.close()


class _RunOfScenario:
    """One run of a scenario in its directory: `result` runs it and writes the results."""

    def __init__(
        self,
        run: PreparedRun,
        options: RunOptions,
        earlier: ResumableRun | None,
        interrupts: Interrupts,
        directory: RunDirectory,
        started_s: float,
        started_cpu_s: float,
    ) -> None:
        self.started_cpu_s = started_cpu_s
        self.run, self.options, self.earlier = run, options, earlier
        self.interrupts, self.directory = interrupts, directory
        self.simulation: Simulation = run.simulation
        self.replaces = options.overwrite
        if earlier is not None and earlier.is_cut_short_of(directory.target):
            assert earlier.cut_short is not None
            directory.target, self.replaces = earlier.cut_short, True
        self.target = directory.target
        self._announce()
        directory.keep_events(self.simulation.trace)
        self.checkpoints = Checkpointer(run, directory.path, options, started_s)
        show = saving_progress(lambda: directory.path, options.progress)
        self.watcher = ProgressWatcher(self.simulation, show, started_s, self.checkpoints.look)
        self.callback = EvaluationCallback(options.on_evaluation)
        collection = GarbageCollection()
        own = [] if options.seat is None else [options.seat]
        for hook in (collection, self.checkpoints, self.watcher, self.callback, *own, *options.hooks):
            self.simulation.add_hook(hook)

    def result(self) -> RunResult:
        """Run to the end, and write the results. An error that ended the run is raised after that."""
        self._start()
        notice = self.options.notice
        explains = explaining_out_of_memory("an evaluation of all models", self.simulation.engine.device)
        with Watchdog(self.simulation, notice or _on_stderr), explains:
            summary, error = self._ran()
            result = self._saved(summary)
            failure = self.callback.call_at_end(self.simulation)
            error = error or failure
            if error is not None:
                _add_notes(error, result)
                raise error
        result = replace(result, unwritten=result.unwritten + self._unlogged())
        if notice is not None and self._has_replaced_nothing(result):
            reason = "was interrupted" if result.interrupted else "failed"
            notice(f"the run {reason}: earlier results are kept")
        return result

    def _start(self) -> None:
        """Start the log of reads; replay a resumed run up to its checkpoint."""
        log, earlier = self.directory.path / READS, self.earlier
        if earlier is not None and earlier.checkpoint is not None:
            earlier.replay(self.run, log, exactly=not self.options.anyway)
        else:
            self.simulation.engine.read_log = RecordedReadLog(Journal(log))

    def _ran(self) -> tuple[dict[str, Any], BaseException | None]:
        """Run, and return the summary, and the error that ended the run early, if any."""
        scenario, simulation, interrupts = self.run.scenario, self.simulation, self.interrupts
        alone, error = None, None
        with warnings_about_code(scenario) as warnings:
            try:
                interrupts.run(simulation)
                if scenario.run.compare_alone and interrupts.number is None:
                    self.watcher.enter(ALONE)
                    alone = interrupts.attempt(train_alone, simulation)
            except BaseException as raised:
                if not self._leaves_results(raised):
                    raise
                error = raised
            record_final_metrics(simulation, alone)
            interrupted = interrupts.number is not None
            self.watcher.enter(WRITING)
            summary = summarise(scenario, simulation, alone, self.watcher.elapsed_s, interrupted)
        if self.earlier is not None and self.earlier.fork is not None:
            summary["fork"] = self.earlier.fork
        summary["warnings"] = [*warnings, *warnings_about_results(simulation), *simulation.hooks.removed]
        if error is not None:
            summary["ended_by"] = self._why(error)
        self._add_energy(summary)
        summary["finished"] = not interrupted and error is None and why_failed(summary) is None
        return summary, error

    def _add_energy(self, summary: dict[str, Any]) -> None:
        if (meter := self.run.meter) is not None:
            cpu_s = _cpu_s(self.options) - self.started_cpu_s
            summary["energy"] = meter.summary(self.simulation, cpu_s)

    def _leaves_results(self, error: BaseException) -> bool:
        """Return True if a run that this error has ended leaves results."""
        if isinstance(error, Deadlock):
            return True
        is_users = isinstance(error, UserError) or error is self.simulation.hooks.failure
        return is_users and self.simulation.observer.has_measured

    def _saved(self, summary: dict[str, Any]) -> RunResult:
        replaces = self.replaces and (summary["finished"] or not _is_finished(self.directory))
        self.simulation.engine.read_log.flush()
        scenario, report = self.run.scenario, self.options.report
        meter = self.run.meter
        return save(
            self.directory,
            scenario,
            self.simulation,
            summary,
            energy=None if meter is None else meter.table(self.simulation),
            overwrite=replaces,
            report=report,
        )

    def _why(self, error: BaseException) -> str:
        """Describe the error that ended a run early."""
        if error is self.callback.failure:
            return f"on_evaluation raised {describe(error)}"
        return f"a hook raised {describe(error)}" if error is self.simulation.hooks.failure else str(error)

    def _unlogged(self) -> tuple[str, ...]:
        """Return the files for resuming that could not be written, each with the reason."""
        read_log = self.simulation.engine.read_log
        assert isinstance(read_log, RecordedReadLog)
        failures = {READS: read_log.failure, CHECKPOINT: self.checkpoints.failure}
        return tuple([f"{name}: {error.strerror}" for name, error in failures.items() if error is not None])

    def _has_replaced_nothing(self, result: RunResult) -> bool:
        is_elsewhere = result.directory not in (None, self.target)
        return self.replaces and is_elsewhere and not result.summary["finished"]

    def _announce(self) -> None:
        """Report the location of the results, unless the run is quiet, and any earlier results."""
        notice, target, free = self.options.notice, self.target, self.directory.expected_path
        if notice is None:
            return
        if free != target and self.replaces:
            when = "finishes" if _is_finished(self.directory) else "ends"
            notice(f"{target} will be replaced when this run {when}")
        elif free != target:
            hint = "" if self.earlier else " (pass --overwrite to replace it)"  # an option of `coterie run`
            notice(f"{target} exists and is kept; the results of this run go to {free}{hint}")
        elif self.options.progress is not None:
            notice(f"the results of this run go to {target}")


def _cpu_s(options: RunOptions) -> float:
    """Return the processor time (s) of the process; of the thread, if other runs share the process."""
    return time.process_time() if options.seat is None else time.thread_time()


def _is_finished(directory: RunDirectory) -> bool:
    """Return True if earlier results at the target are finished, or do not state whether they are."""
    try:
        return bool(RunDirectory.load(directory.target).summary()["finished"])
    except (OSError, UserError):
        return True


def _add_notes(error: BaseException, result: RunResult) -> None:
    """Add notes about the results to an error."""
    for warning in result.summary["warnings"]:
        error.add_note(f"warning: {warning}")
    where = "could not be written" if result.directory is None else f"are in {result.directory}"
    error.add_note(f"the results so far {where}")
    for reason in result.unwritten:
        error.add_note(f"not written: {reason}")


def _on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
