"""From a resolved scenario to a result directory: a function without globals."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from actors.message import describe
from sim.core.simulation import Simulation
from sim.errors import NotVerified, UserError
from sim.files.journal import Journal
from sim.kernel.clock import Deadlock
from sim.learning.engine.memory import explained
from sim.learning.engine.replay.replay_log import RecordedReadLog
from sim.learning.engine.replay.snapshot import collect
from sim.plugins.source_files import INSTALLED, PRODUCT
from sim.results.outcome import why_failed
from sim.results.store.output_dir import CHECKPOINT, READS
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import first_difference
from sim.run.interrupts import Interrupted, Interrupts, answering, raise_interrupted
from sim.run.local_baseline import record_ending, train_alone
from sim.run.mistakes import mistakes_in_code, mistakes_in_results
from sim.run.process import safe_path
from sim.run.resume.checkpoint import Checkpointer
from sim.run.resume.resuming import ResumableRun, fork_of, other_future
from sim.run.save.progress import ALONE, WRITING, Show, Watcher
from sim.run.save.progress_file import saving_progress
from sim.run.save.provenance import made_by
from sim.run.save.saving import RunResult, create_directory, save
from sim.run.save.telling import Telling, Told
from sim.run.setup.builder import SIMULATED, PreparedRun, built
from sim.run.setup.engine import MakeWorkers, threads_here
from sim.run.summary import summarise
from sim.run.watchdog import Watchdog
from sim.scenario.scenario import Scenario


def run_scenario(
    scenario: Scenario,
    *,
    out: Path = Path("runs"),
    overwrite: bool = False,
    device: str = "auto",
    data_dir: Path | None = None,
    progress: Show | None = None,
    log: Callable[[str], None] | None = None,
    notice: Callable[[str], None] | None = None,
    on_evaluation: Told | None = None,
    checkpoint_every_s: float | None = None,
    checkpoint_at_end: bool = True,
    checkpoints_s: Sequence[float] = (),
    earlier: ResumableRun | None = None,
    anyway: bool = False,
    workers: MakeWorkers = threads_here,
    report: bool = True,
) -> RunResult:
    """Run a scenario and write its result directory under `out`.

    Results that are there from the same scenario stay: the new ones go beside them, which `notice` is told,
    or with `overwrite` in their place, if this run is finished or they are not. A signal (Ctrl-C, SIGTERM,
    SIGHUP) ends the run early and leaves a valid directory; a second one ends it at once, by `Interrupted`,
    or with the process where that is the command's own. That a method lets no virtual time pass for 10 s is
    said in any case, on stderr where `notice` is None.
    Raises UserError for what can't be run, and Deadlock when every client waits for ever; where something was
    measured until then the directory is written before that, too, and named in a note.

    on_evaluation: called with each `Evaluation`; what it raises ends the run, and is raised when its results
    have been written. checkpoint_every_s: real time between two checkpoints; one is written when a signal
    comes, too. checkpoint_at_end: one of the end, too, if it is small. checkpoints_s: virtual times of
    others. earlier: a run of this scenario, or one with the same past, that goes on from its checkpoint.
    UserError where it would not be the same any more, but with `anyway` only where it cannot go on at all.
    workers: makes those who compute parts of batches; the results are the same with any. report: whether the
    results get a report.
    """
    world = replace(SIMULATED, workers=workers)
    started = time.perf_counter()
    if earlier is not None and earlier.checkpoint is not None:
        started -= earlier.checkpoint.wall_s
    interrupts = Interrupts()
    with interrupts.answered(), built(scenario, data_dir, device, world) as run:
        simulation = run.simulation
        if earlier is not None and (changed := earlier.differences(run)):
            _refuse_or_say(earlier, changed, anyway, notice)
        if notice is not None:
            for said in run.scenario.notices:
                if said not in scenario.notices:  # which were told before
                    notice(said)
        scenario = run.scenario  # with what was decided: running it again gives the same directory
        assert scenario.engine.threads != "fastest", "measured by now"
        torch.set_num_threads(scenario.engine.threads)
        fork, on = fork_of(earlier), str(simulation.engine.device)
        made = made_by(scenario, simulation.engine.device, simulation.engine.data)
        parent = other_future(earlier)
        directory = create_directory(scenario, out, on, overwrite, made=made, fork=fork, parent=parent)
        if earlier is not None and earlier.is_cut_short_of(directory.target):
            assert earlier.cut_short is not None
            directory.target = earlier.cut_short
            overwrite = True
        place = directory.target
        interrupts.on_abandoned = directory.discard
        try:
            if notice is not None:
                _announce(directory, overwrite, earlier is not None, notice, quiet=progress is None)
            checkpoints = Checkpointer(
                run,
                directory.path,
                made,
                started,
                checkpoint_every_s,
                checkpoints_s,
                checkpoint_at_end,
                lambda: interrupts.number is not None,
            )
            directory.keep_events(simulation.trace)
            show = saving_progress(lambda: directory.path, progress)
            telling = Telling(simulation, on_evaluation)
            watcher = _watch(simulation, show, started, log, checkpoints, telling)
            _begin(run, directory, earlier, anyway=anyway)
            explains = explained("an evaluation of all models", simulation.engine.device)
            with Watchdog(simulation, notice or _on_stderr), explains:
                result = _run(run, directory, overwrite, interrupts, watcher, fork, telling, report)
            result = replace(result, unwritten=result.unwritten + _unlogged(simulation, checkpoints))
            kept = overwrite and not result.summary["finished"] and result.directory not in (None, place)
            if notice is not None and kept:
                why = "was interrupted" if result.interrupted else "failed"
                notice(f"the run {why}: it has replaced nothing")
        except BaseException:
            directory.discard()  # no effect on results that are complete
            raise
        finally:
            simulation.engine.read_log.close()
    return replace(result, signal=interrupts.number)


def _refuse_or_say(
    earlier: ResumableRun, changed: list[str], anyway: bool, notice: Callable[[str], None] | None
) -> None:
    """UserError for a run that would not go on exactly, unless that is wanted."""
    if not anyway:
        raise UserError(
            f"{earlier.path} would not go on as it was: {'; '.join(changed)}; --anyway goes on all the same"
        )
    if notice is not None:
        notice(f"no longer exact: {'; '.join(changed)}")


def _begin(run: PreparedRun, directory: RunDirectory, earlier: ResumableRun | None, *, anyway: bool) -> None:
    """Have a run log what it reads; one that goes on is taken to where its checkpoint is.

    anyway: whether it may then find other numbers than the run did.
    """
    log = directory.path / READS
    if earlier is not None and earlier.checkpoint is not None:
        earlier.replay(run, log, exactly=not anyway)
    else:
        run.simulation.engine.read_log = RecordedReadLog(Journal(log))


def _unlogged(simulation: Simulation, checkpoints: Checkpointer) -> tuple[str, ...]:
    """The files from which a run could go on that could not be written, each with the reason."""
    read_log = simulation.engine.read_log
    assert isinstance(read_log, RecordedReadLog)
    failures = {READS: read_log.failure, CHECKPOINT: checkpoints.failure}
    return tuple([f"{name}: {error.strerror}" for name, error in failures.items() if error is not None])


def _announce(
    directory: RunDirectory, overwrite: bool, goes_on: bool, notice: Callable[[str], None], *, quiet: bool
) -> None:
    """Say where the results go, unless `quiet`; and if there are results of this scenario already."""
    place, free = directory.target, directory.expected_path
    if free != place and overwrite:
        when = "when this run is finished" if _is_finished(place) else "when this run has ended"
        notice(f"{place} will be replaced {when}")
    elif free != place:
        replaces = "" if goes_on else " (--overwrite replaces)"  # an option of `coterie run` alone
        notice(f"{place} exists and stays; the results of this run go to {free}{replaces}")
    elif not quiet:
        notice(f"the results of this run go to {place}")


def _is_finished(place: Path) -> bool:
    """Whether results, if there are any, are of a finished run; those that don't say so count as such."""
    try:
        return bool(RunDirectory.load(place).summary()["finished"])
    except (OSError, UserError):
        return True


def _run(
    run: PreparedRun,
    directory: RunDirectory,
    overwrite: bool,
    interrupts: Interrupts,
    watcher: Watcher,
    fork: Mapping[str, Any] | None,
    telling: Telling,
    report: bool,
) -> RunResult:
    """Run to the end, and write the results; raises what ended the run before its time after that.

    fork: what the summary says of one.
    """
    error: BaseException | None = None
    scenario, simulation = run.scenario, run.simulation
    with mistakes_in_code(scenario) as warnings:
        alone = None
        try:
            interrupts.run(simulation)
            if scenario.run.compare_alone and interrupts.number is None:
                watcher.enter(ALONE)
                alone = interrupts.attempt(train_alone, simulation)
        except BaseException as raised:
            if not isinstance(raised, Deadlock | UserError) and raised is not telling.failure:
                raise
            if not isinstance(raised, Deadlock) and not simulation.observer.has_measured:
                raise  # there is nothing to keep
            error = raised
        record_ending(simulation, alone)
        interrupted = interrupts.number is not None
        watcher.enter(WRITING)
        summary = summarise(scenario, simulation, alone, watcher.elapsed_s, interrupted)
    if fork is not None:
        summary["fork"] = fork
    summary["warnings"] = [*warnings, *mistakes_in_results(simulation)]
    if error is not None:
        summary["ended_by"] = _why(error, telling)
    summary["finished"] = not interrupted and error is None and why_failed(summary) is None
    replaces = overwrite and (summary["finished"] or not _is_finished(directory.target))
    simulation.engine.read_log.flush()
    result = save(directory, scenario, simulation, summary, overwrite=replaces, report=report)
    failure = telling.ended()
    error = error or failure
    if error is not None:
        _add_notes(error, result)
        raise error
    return result


def _why(error: BaseException, telling: Telling) -> str:
    """What ended a run before its time."""
    return f"on_evaluation raised {describe(error)}" if error is telling.failure else str(error)


def _add_notes(error: BaseException, result: RunResult) -> None:
    """Have an error say what became of the results until then."""
    for warning in result.summary["warnings"]:
        error.add_note(f"warning: {warning}")
    where = "could not be written" if result.directory is None else f"are in {result.directory}"
    error.add_note(f"the results up to then {where}")
    for reason in result.unwritten:
        error.add_note(f"not written: {reason}")


def verify(
    scenario: Scenario, result: RunResult, *, device: str = "auto", data_dir: Path | None = None
) -> str | None:
    """Run once more, in a new process with another hash seed; describes the first difference, None if none.

    A process of its own shows what a second run in this one would hide: anything that depends on the order of
    sets, on addresses or on state left over. A signal ends it, too, and raises `Interrupted`. Raises
    NotVerified where the second run leaves no results.
    """
    assert result.directory is not None
    with answering(raise_interrupted), tempfile.TemporaryDirectory() as folder:
        again = Path(folder)
        command = [sys.executable, "-m", "sim", "run", str(result.directory / "scenario.toml")]
        # Beside the user's files is what they read, not beside their copies.
        for plugin in scenario.plugins:
            command += ["--set", f"{plugin.key}={plugin.name}"] if plugin.is_unchanged() else []
        command += ["--quiet", "--out", str(again), "--device", device, "--set", "run.compare_alone=false"]
        command += ["--data-dir", str(data_dir)] if data_dir is not None else []
        with safe_path():
            code, errors = _output(command, _environment())
        # A failed run, too, has results to compare.
        found = [path for path in again.iterdir() if (path / "summary.json").is_file()]
        if len(found) != 1:
            raise NotVerified(f"it left no results, and exit code {code}:\n{errors.strip()}")
        second = RunDirectory.load(found[0])
        if second.summary()["trace_hash"] == result.summary["trace_hash"]:
            return None
        first = RunDirectory.load(result.directory)
        difference = first_difference(
            first.scan("events").collect().to_arrow(), second.scan("events").collect().to_arrow()
        )
        return difference or "the hashes differ, in messages that run.keep_messages = false did not keep"


def _environment() -> dict[str, str]:
    """The environment of a process with another hash seed, which runs the coterie that this one runs."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    # Run from its sources it may not be the one that is installed.
    path = [] if PRODUCT.name in INSTALLED else [str(PRODUCT)]
    path += [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return os.environ | {"PYTHONHASHSEED": seed} | ({"PYTHONPATH": os.pathsep.join(path)} if path else {})


def _output(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and errors of a command. A signal to this process ends it and raises `Interrupted`."""
    process: subprocess.Popen[str] | None = None
    signals: list[int] = []

    def end(number: int) -> None:
        signals.append(number)
        if process is not None:
            process.kill()

    with answering(end):
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if signals:  # while it was being started
            process.kill()
        _, errors = process.communicate()
    if signals:
        raise Interrupted(signals[0])
    return process.returncode, errors


def _on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# --- while it runs ------------------------------------------------------------------------------------------


def _watch(
    simulation: Simulation,
    show: Show,
    started: float,
    log: Callable[[str], None] | None,
    checkpoints: Checkpointer,
    telling: Telling,
) -> Watcher:
    """Collect garbage at evaluations, tell of them, and show how far the run is."""
    watcher = Watcher(simulation, show, started, checkpoints.look)

    def evaluated() -> None:
        collect(simulation.engine)
        simulation.engine.read_log.flush()
        watcher.evaluated()
        telling.evaluated()

    if log is not None:
        simulation.on_log = log
    simulation.observer.on_evaluated = evaluated
    return watcher
