"""Work of a client so far, and the remaining budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from protocols.framework import vectors
from protocols.framework.compute import TrainRequest
from sim.core.client_training import DeviceCompute
from sim.core.rules import ClientBudget


@dataclass(frozen=True)
class Work:
    """Work of a client over all its sessions, in the units of a budget.

    steps: training steps. gradients: gradients besides those of training steps. samples: samples of training
    and gradients; each view counts. time: seconds during which the client was up. bytes: sent bytes, without
    the network's duplicates of datagrams.
    """

    steps: int
    gradients: int
    samples: int
    time: float
    bytes: int

    @classmethod
    def of(cls, own: DeviceCompute, bytes_sent: int) -> Work:
        """Return the work so far of the client with this device."""
        return cls(own.training_steps, own.gradients, own.samples_seen, own.device.up_s, bytes_sent)

    def share_of(self, budget: ClientBudget) -> float:
        """Return the used share of a budget, at most 1."""
        return min(1.0, getattr(self, budget.kind) / budget.limit)


class BudgetedCompute(DeviceCompute):
    """Device and data of a client with a budget. bytes_sent: function that returns the bytes sent so far.

    energy_share: function that returns the used share of a budget of energy; the meter of the run sets it.
    """

    energy_share: Callable[[], float]

    def __init__(self, *arguments: Any, budget: ClientBudget, bytes_sent: Callable[[], int]) -> None:
        super().__init__(*arguments)
        self._budget = budget
        self._bytes_sent = bytes_sent

    async def train(self, request: TrainRequest) -> vectors.Vector:
        self.steps_begun += request.steps
        try:
            return await super().train(request)
        finally:
            self.steps_begun -= request.steps

    @property
    def steps_left(self) -> float:  # type: ignore[override]
        budget = self._budget
        if budget.steps is not None:
            return budget.steps - self.training_steps - self.steps_begun
        if budget.samples is not None:
            # Gradients that peers request may exceed the budget.
            whole = (budget.samples - self.samples_seen) // self.samples_per_step
            return max(0, whole - self.steps_begun)
        return math.inf if self.budget_share < 1 else 0

    @property
    def budget_share(self) -> float:
        """Used share of the budget, at most 1."""
        if self._budget.energy is not None:
            return self.energy_share()
        return Work.of(self, self._bytes_sent()).share_of(self._budget)
