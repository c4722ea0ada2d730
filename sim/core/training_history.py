"""The training steps that a client took, and what it would be had it taken them alone."""

import math
from dataclasses import dataclass

from sim.learning.engine import Engine, Optimizer, Vector
from sim.learning.engine.graph.operations import Train
from sim.learning.engine.graph.sampler import TrainJob

_STEPS_AT_ONCE = 64  # per job: as many as are drawn at once


@dataclass(slots=True)
class _Steps:
    """Training steps that followed each other, perhaps begun with a fresh optimizer.

    At one learning rate, or at one each.
    """

    steps: int
    learning_rate: float | tuple[float, ...]
    fresh_optimizer: bool


_NONE = _Steps(0, math.nan, True)  # which is like no other


class StepsTaken:
    """The training steps of a client so far, over all its lives.

    `last`: the latest of them, to which steps of the same kind may be added.
    """

    __slots__ = ("_optimizer", "_taken", "last")

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._taken: list[_Steps] = []
        self.last = _NONE

    def add(self, steps: int, learning_rate: float | tuple[float, ...], fresh: bool) -> None:
        """Remember steps, the first perhaps with a `fresh` optimizer; those of one kind are one entry."""
        last, state_reset = self.last, fresh and self._optimizer.slots
        if last.learning_rate == learning_rate and type(learning_rate) is float and not state_reset:
            last.steps += steps
        else:
            self.last = _Steps(steps, learning_rate, fresh)
            self._taken.append(self.last)

    def recorded(self) -> list[tuple[int, float | tuple[float, ...], bool]]:
        """What was added, one after the other."""
        return [(each.steps, each.learning_rate, each.fresh_optimizer) for each in self._taken]

    def again(self, engine: Engine, operation: Train, start: Vector, client: int, key: int) -> Vector | None:
        """Parameters after the same steps from `start`, by another engine; None if no step was taken.

        The same learning rates and optimizer, on the batches of that `key`, without proximal terms and
        weights.
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
