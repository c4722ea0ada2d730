"""Telling a function of the user's what each evaluation has found, while the run goes on."""

from collections.abc import Callable

from sim.core.simulation import Simulation
from sim.plugins.section import FAILURES
from sim.results.evaluations import Evaluation

Told = Callable[[Evaluation], object]


class Telling:
    """Tells `told`, if there is one, of evaluations until it fails; `failure` is what it raised.

    The last evaluation is told when all that is known only at the end has been measured, too.
    """

    def __init__(self, simulation: Simulation, told: Told | None) -> None:
        self.failure: BaseException | None = None
        self._observer = simulation.observer
        self._told = told

    def evaluated(self) -> None:
        """There was an evaluation. Raises what the function raises, which ends the run."""
        if not self._observer.at_end:
            self._tell()
        if self.failure is not None:
            raise self.failure

    def ended(self) -> BaseException | None:
        """The run is over, and its results are written; returns what the function raises."""
        if self.failure is None:
            self._tell()
            return self.failure
        return None

    def _tell(self) -> None:
        if self._told is None or self.failure is not None:
            return
        try:
            self._told(Evaluation.of(*self._observer.metrics.newest()))
        except FAILURES as error:
            self.failure = error
