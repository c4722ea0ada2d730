"""Telling a function of the user's what each evaluation has found, while the run goes on."""

from collections.abc import Callable
from typing import ClassVar

from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation
from sim.plugins.section import FAILURES
from sim.results.evaluations import Evaluation

Told = Callable[[Evaluation], object]


class Telling(RunHook):
    """Tells `told`, if there is one, of evaluations until it fails; `failure` is what it raised.

    The last evaluation is told when all that is known only at the end has been measured, too.
    """

    ends_run: ClassVar[bool] = True

    def __init__(self, told: Told | None) -> None:
        self.failure: BaseException | None = None
        self._told = told

    def evaluated(self, simulation: Simulation) -> None:
        if not simulation.observer.at_end:
            self._tell(simulation)
        if self.failure is not None:
            raise self.failure

    def tell_the_end(self, simulation: Simulation) -> BaseException | None:
        """Tell of the last evaluation, after the results are written; returns what the function raises."""
        if self.failure is None:
            self._tell(simulation)
            return self.failure
        return None

    def _tell(self, simulation: Simulation) -> None:
        if self._told is None or self.failure is not None:
            return
        try:
            self._told(Evaluation.of(*simulation.observer.metrics.newest()))
        except FAILURES as error:
            self.failure = error
