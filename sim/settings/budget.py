"""How much each client may train."""

from typing import Annotated, Literal

from pydantic import PositiveInt, model_validator

from protocols.settings import PositiveDuration, Settings, Size, Within
from sim.settings.shared import exactly_one

Kind = Literal["steps", "samples", "time", "bytes"]


class Budget(Settings):
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
    def _one_of_them(self) -> "Budget":
        exactly_one(self, "steps", "samples", "time", "bytes")
        return self

    @property
    def kind(self) -> Kind:
        """Which key is stated."""
        if self.steps is not None:
            return "steps"
        if self.samples is not None:
            return "samples"
        return "time" if self.time is not None else "bytes"

    @property
    def limit(self) -> float:
        """Its value: a number of steps or samples, seconds, or bytes."""
        limit: float = getattr(self, self.kind)
        return limit
