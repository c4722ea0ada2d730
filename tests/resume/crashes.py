"""Runs that are cut short after every k-th message event, and go on, all in one process."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from sim.core.hooks import MessageEvent
from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation
from sim.files.journal import Journal, frames
from sim.learning.engine.replay_log import RecordedReadLog, ReplayedReadLog
from sim.learning.engine.snapshot import require_same_owners, start_replay
from sim.results.store.output_dir import READS
from sim.run.collection import GarbageCollection
from sim.run.resume.checkpoint import Checkpoint
from sim.run.resume.held_vectors import name_of_owner
from sim.run.resume.resuming import ResumableRun
from sim.run.save.provenance import conditions_of_run
from sim.run.setup.builder import PreparedRun, building_process
from sim.scenario.scenario import Scenario
from tests.resume.same import require_same_rows


@dataclass(frozen=True)
class Whole:
    """A run that nothing disturbed: the checkpoints on its way, and its end."""

    folder: Path
    checkpoints: list[Checkpoint]
    end: Checkpoint


def require_goes_on_anywhere(
    folder: Path, scenario: Scenario, *, events: int, crashes: int, seed: int = 1
) -> int:
    """A replay holds what the run held after each `events` message events; `crashes` of these runs go on.

    Each of them must come to the same trace, and the same numbers in the same rows. Returns the number of
    checkpoints that were compared.
    """
    folder.mkdir()
    whole = recorded(folder, scenario, events)
    assert whole.checkpoints, "fewer events than there are between two checkpoints"
    require_same_walk(scenario, whole)
    chosen = random.Random(seed).sample(whole.checkpoints, min(crashes, len(whole.checkpoints)))
    for number, at in enumerate(chosen):
        require_same_end(scenario, whole, at, folder / f"log-{number}")
    return len(whole.checkpoints)


def recorded(folder: Path, scenario: Scenario, events: int) -> Whole:
    """Run a scenario to its end, with a checkpoint at the end of each instant with an `events`-th event."""
    with ready(scenario) as run:
        simulation = run.simulation
        simulation.engine.read_log = RecordedReadLog(Journal(folder / READS))
        checkpoints: list[Checkpoint] = []

        class Checkpoints(RunHook):
            ends_run: ClassVar[bool] = True

            def message(self, event: MessageEvent) -> None:
                if len(simulation.trace) % events == 0:
                    simulation.loop.pause()

            def paused(self, simulation: Simulation) -> None:
                checkpoints.append(Checkpoint.of(run, 0.0, made(run)))

        simulation.add_hook(Checkpoints())
        simulation.run()
        return Whole(folder, checkpoints, Checkpoint.of(run, 0.0, made(run)))


def require_same_walk(scenario: Scenario, whole: Whole) -> None:
    """One replay, which computes nothing, holds at each checkpoint the rows that the run held."""
    with ready(scenario) as run:
        simulation = run.simulation
        log = ReplayedReadLog(frames(whole.folder / READS))
        start_replay(simulation.engine, log)
        simulation.begin()
        for at in whole.checkpoints:
            assert simulation.loop.run_until(at.time_s)
            assert (log.count, simulation.engine.flushes) == (at.reads, at.flushes)
            assert simulation.trace.hash() == at.trace_hash
            require_same_owners(simulation.engine, at.rows, partial(name_of_owner, simulation))


def require_same_end(scenario: Scenario, whole: Whole, at: Checkpoint, log: Path) -> None:
    """A run that continues from a checkpoint ends as the one that was not cut short."""
    with ready(scenario) as run:
        ResumableRun(whole.folder, at, is_finished=False).replay(run, log)
        run.simulation.run()
        end = Checkpoint.of(run, 0.0, made(run))
    assert end.trace_hash == whole.end.trace_hash
    require_same_rows(end, whole.end)


@contextmanager
def ready(scenario: Scenario) -> Iterator[PreparedRun]:
    with building_process(scenario, None, "cpu") as run:
        simulation = run.simulation
        simulation.add_hook(GarbageCollection())
        yield run
        assert [str(failure) for failure in simulation.supervisor.failures] == []
        simulation.engine.read_log.close()


def made(run: PreparedRun) -> dict[str, str]:
    return conditions_of_run(run.scenario, run.simulation.engine.device)
