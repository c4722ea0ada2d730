"""Garbage collection at evaluations, instead of at Python's own times."""

from typing import ClassVar

from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation
from sim.learning.engine.snapshot import collect_garbage


class GarbageCollection(RunHook):
    """Collection of cyclic garbage after each evaluation, so that its times depend only on events."""

    ends_run: ClassVar[bool] = True

    def evaluated(self, simulation: Simulation) -> None:
        collect_garbage(simulation.engine)
        simulation.engine.read_log.flush()
