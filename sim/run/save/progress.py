"""Progress of a run, for display."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sim.results.measures import MEASURES, Measure

RUNNING = "running"
ALONE = "training alone for comparison"
WRITING = "writing results"


@dataclass(frozen=True)
class Progress:
    """Progress of a run. None: unknown, or not a limit of this run.

    elapsed_s is wall-clock time, and remaining_s an estimate of it; virtual_s and duration_s are virtual
    time. iterations: the least of all clients that are up and still train, out of `last_iteration`.
    budget_spent: the smallest used share of a budget among the clients that are up. reached: the mean of the
    quality `measure`. diverged: the number of models that are not finite.
    """

    phase: str
    elapsed_s: float
    remaining_s: float | None
    virtual_s: float
    duration_s: float | None
    iterations: int | None
    last_iteration: int | None
    budget_spent: float | None
    reached: float | None
    diverged: int
    clients_up: int
    messages: int
    updates_per_s: float
    measure: Measure = MEASURES[0]

    @property
    def shares(self) -> tuple[float | None, float | None, float | None]:
        """Finished shares of duration, iterations and budget; the first that is 1 ends the run."""
        duration = self.virtual_s / self.duration_s if self.duration_s else None
        if self.iterations is None or not self.last_iteration:
            return duration, None, self.budget_spent
        return duration, min(1.0, self.iterations / self.last_iteration), self.budget_spent


Show = Callable[[Progress], object]
