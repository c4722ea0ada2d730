"""How far a run is, for people to read meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sim.results.measures import MEASURES, Measure

RUNNING = "running"
ALONE = "training alone for comparison"
WRITING = "writing results"


@dataclass(frozen=True)
class Progress:
    """How far a run is. None: unknown, or no limit of this run.

    elapsed_s and remaining_s are real time, the latter an estimate; virtual_s and duration_s virtual time.
    iterations: what every client that is up and still trains has done, of `last_iteration`. budget_spent: the
    share of its budget that every client that is up has spent. reached: the mean of what clients are judged
    by, the `measure`. diverged: models not finite.
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
        """How much of its duration, iterations and budget is done; the first to be 1 ends the run."""
        duration = self.virtual_s / self.duration_s if self.duration_s else None
        if self.iterations is None or not self.last_iteration:
            return duration, None, self.budget_spent
        return duration, min(1.0, self.iterations / self.last_iteration), self.budget_spent


Show = Callable[[Progress], object]
