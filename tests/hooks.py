"""Hooks for tests."""

from collections.abc import Callable
from typing import ClassVar

from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation


class AtEvaluations(RunHook):
    """Calls a function after each evaluation; its error ends the run."""

    ends_run: ClassVar[bool] = True

    def __init__(self, function: Callable[[Simulation], object]) -> None:
        self._function = function

    def evaluated(self, simulation: Simulation) -> None:
        self._function(simulation)


class FailureLines(RunHook):
    """The lines about failures of actors."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def failed(self, line: str) -> None:
        self.lines.append(line)
