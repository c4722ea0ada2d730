"""Training steps of a client, and their replay without peers."""

import math
from dataclasses import dataclass

from sim.learning.engine import Engine, Optimizer, Vector
from sim.learning.engine.graph.operations import Train
from sim.learning.engine.graph.sampler import TrainJob

_STEPS_AT_ONCE = 64  # per job, the number of steps whose batches are drawn together


@dataclass(slots=True)
class _Steps:
    """Consecutive training steps; `fresh_optimizer` is True if the first one reset the optimizer.

    The learning rate is one number for all steps, or one number for each.
    """

    steps: int
    learning_rate: float | tuple[float, ...]
    fresh_optimizer: bool


_NONE = _Steps(0, math.nan, True)  # equal to no other entry


class StepsTaken:
    """Training steps of a client so far, over all its sessions.

    `last`: the latest entry, which grows with steps of the same kind.
    """

    __slots__ = ("_optimizer", "_taken", "last")

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._taken: list[_Steps] = []
        self.last = _NONE

    def add(self, steps: int, learning_rate: float | tuple[float, ...], fresh: bool) -> None:
        """Record steps; equal steps share an entry. fresh: True if the first step reset the optimizer."""
        last, state_reset = self.last, fresh and self._optimizer.slots
        if last.learning_rate == learning_rate and type(learning_rate) is float and not state_reset:
            last.steps += steps
        else:
            self.last = _Steps(steps, learning_rate, fresh)
            self._taken.append(self.last)

    def recorded(self) -> list[tuple[int, float | tuple[float, ...], bool]]:
        """Return the entries in order, as (steps, learning rate, fresh optimizer)."""
        return [(each.steps, each.learning_rate, each.fresh_optimizer) for each in self._taken]

    def again(self, engine: Engine, operation: Train, start: Vector, client: int, key: int) -> Vector | None:
        """Repeat the steps from `start` on another engine, and return the parameters; None without steps.

        Learning rates, optimizer, and the batches of stream `key` are the same. Proximal terms and sample
        weights are left out.
        """
        if not self._taken:
            return None
        params, state, drawn, done = start, None, 0, 0
        for taken in self._taken:
            if taken.fresh_optimizer:
                state, done = None, 0
            for first in range(0, taken.steps, _STEPS_AT_ONCE):
                steps = min(_STEPS_AT_ONCE, taken.steps - first)
                rate = taken.learning_rate
                rate = rate[first : first + steps] if isinstance(rate, tuple) else rate
                job = TrainJob(client, key, drawn, steps, rate, done, ())
                params, state = engine.train(operation, params, job, state=state)
                drawn, done = drawn + steps, done + steps
        return params
