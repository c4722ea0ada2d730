"""What a client has done so far, and what its budget leaves it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import PositiveInt, model_validator

from actors.settings.base import Settings, exactly_one
from actors.settings.quantities import PositiveDuration, Size, Within
from protocols.framework import vectors
from protocols.framework.compute import TrainRequest
from sim.core.client_training import DeviceCompute

Kind = Literal["steps", "samples", "time", "bytes"]


class ClientBudget(Settings):
    """What each client may spend over all its lives; then it trains no more and only serves the others.
    State exactly one key."""

    steps: Annotated[PositiveInt, Within(1, 1_000_000_000)] | None = None
    """Training steps; the last training is shortened, so that nobody takes more."""
    samples: Annotated[PositiveInt, Within(1, 1_000_000_000_000)] | None = None
    """Samples seen in training and in gradients, each view counted. Training ends with the last whole batch
    that fits."""
    time: PositiveDuration | None = None
    """Virtual time for which the client is up; training that has begun by then is finished."""
    bytes: Size | None = None
    """Bytes that the client sends; training that has begun by then is finished."""

    @model_validator(mode="after")
    def _one_of_them(self) -> ClientBudget:
        exactly_one(self, *get_args(Kind))
        return self

    @property
    def kind(self) -> Kind:
        kinds: tuple[Kind, ...] = get_args(Kind)
        return next(kind for kind in kinds if getattr(self, kind) is not None)

    @property
    def limit(self) -> float:
        """The value of the stated key: a number of steps or samples, seconds, or bytes."""
        limit: float = getattr(self, self.kind)
        return limit


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

    @classmethod
    def of(cls, own: DeviceCompute, bytes_sent: int) -> Work:
        """What the client with this computing has done until now."""
        return cls(own.training_steps, own.gradients, own.samples_seen, own.device.up_s, bytes_sent)

    def share_of(self, budget: ClientBudget) -> float:
        """How much of a budget this is, at most 1."""
        return min(1.0, getattr(self, budget.kind) / budget.limit)


class BudgetedCompute(DeviceCompute):
    """The computing of a client that has a budget. bytes_sent: tells how many it has sent so far."""

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
            # Gradients that others ask for may go beyond it.
            whole = (budget.samples - self.samples_seen) // self.samples_per_step
            return max(0, whole - self.steps_begun)
        return math.inf if Work.of(self, self._bytes_sent()).share_of(budget) < 1 else 0
