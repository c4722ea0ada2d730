"""Collection of garbage at evaluations, instead of whenever Python would."""

from typing import ClassVar

from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation
from sim.learning.engine.snapshot import collect


class GarbageCollection(RunHook):
    """Collects cyclic garbage after each evaluation, so that its moment depends on events alone."""

    ends_run: ClassVar[bool] = True

    def evaluated(self, simulation: Simulation) -> None:
        collect(simulation.engine)
        simulation.engine.read_log.flush()
