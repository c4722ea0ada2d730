"""What a client has done so far, and what its budget leaves it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sim.compute import DeviceCompute
from sim.settings.budget import Budget


@dataclass(frozen=True)
class Work:
    """What a client has done over all its lives: all that a budget may limit, by the same names.

    steps: of training. samples: in training and in gradients, each view counted. time: for which it was up,
    in seconds. bytes: of what it sent, without the copies that a network makes of datagrams.
    """

    steps: int
    gradients: int
    samples: int
    time: float
    bytes: int


class Account:
    """One client's work and its budget (None: it may train as long as the run lasts)."""

    def __init__(self, compute: DeviceCompute, bytes_sent: Callable[[], int], budget: Budget | None) -> None:
        self.compute = compute
        self.budget = budget
        self._bytes_sent = bytes_sent

    @property
    def work(self) -> Work:
        """What the client has done until now."""
        own = self.compute
        return Work(own.training_steps, own.gradients, own.samples_seen, own.device.up_s, self._bytes_sent())

    @property
    def share_spent(self) -> float:
        """How much of the budget is spent; 0 without one."""
        if self.budget is None:
            return 0.0
        return min(1.0, getattr(self.work, self.budget.kind) / self.budget.limit)

    def steps_left(self) -> float:
        """Training steps that may still be begun, beside those that are under way."""
        budget, own = self.budget, self.compute
        if budget is None:
            return math.inf
        if budget.steps is not None:
            return budget.steps - own.training_steps - own.steps_begun
        if budget.samples is not None:
            # Gradients that others ask for may go beyond it.
            whole = (budget.samples - own.samples_seen) // own.samples_per_step
            return max(0, whole - own.steps_begun)
        return math.inf if getattr(self.work, budget.kind) < budget.limit else 0
