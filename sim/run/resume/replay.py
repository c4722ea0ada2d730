"""Going through a run again by the log of its reads: the same events and messages, and no tensor work."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from sim.files.journal import frames
from sim.learning.engine.replay.replay_log import ReplayedReadLog
from sim.learning.engine.replay.snapshot import collect, start_replay
from sim.results.store.output_dir import READS
from sim.results.store.run_directory import RunDirectory
from sim.run.live.simulation import Simulation
from sim.run.setup.builder import built
from sim.scenario.scenario import Scenario


@contextmanager
def replaying(
    scenario: Scenario, directory: RunDirectory, *, device: str = "auto", data_dir: Path | None = None
) -> Iterator[Simulation]:
    """A simulation at virtual time 0 that will do what a run of this scenario did, as far as its log goes.

    Raises UserError for what cannot be built, and `ReplayError` where the log is of another run.
    """
    assert scenario.engine.threads != "fastest", "a scenario as results state it"
    with built(scenario, data_dir, device) as simulation:
        start_replay(simulation.engine, ReplayedReadLog(frames(directory.path / READS)))
        simulation.observer.on_evaluated = partial(collect, simulation.engine)
        yield simulation
