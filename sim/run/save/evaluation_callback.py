"""Calls of the user's function for each evaluation during a run."""

from collections.abc import Callable
from typing import ClassVar

from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation
from sim.errors import FAILURES
from sim.results.evaluations import Evaluation

EvaluationFunction = Callable[[Evaluation], object]


class EvaluationCallback(RunHook):
    """Hook that calls `function`, if any, for each evaluation until it fails; `failure` is its error.

    The last evaluation also contains metrics that are known only at the end; `call_at_end` passes it on.
    """

    ends_run: ClassVar[bool] = True

    def __init__(self, function: EvaluationFunction | None) -> None:
        self.failure: BaseException | None = None
        self._function = function

    def evaluated(self, simulation: Simulation) -> None:
        if not simulation.observer.at_end:
            self._call(simulation)
        if self.failure is not None:
            raise self.failure

    def call_at_end(self, simulation: Simulation) -> BaseException | None:
        """Call the function for the last evaluation, after the results are written; return its error."""
        if self.failure is None:
            self._call(simulation)
            return self.failure
        return None

    def _call(self, simulation: Simulation) -> None:
        if self._function is None or self.failure is not None:
            return
        try:
            self._function(Evaluation.of(*simulation.observer.metrics.newest()))
        except FAILURES as error:
            self.failure = error
