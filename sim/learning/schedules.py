"""Schedules of the learning rate, by training steps, a server's rounds or virtual time."""

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings
from actors.settings.quantities import Share, ShareAboveZero, Span, span

if TYPE_CHECKING:
    Stretch = Span
else:
    Stretch = span("step", "round")


class Schedule(Settings):
    """Factors of the learning rate. Lengths are in training steps of the client, rounds, or virtual time.

    All lengths have the same unit. In a schedule by rounds, a training job uses the rate of the round in
    which the server lets the client train: the same for all clients, however often each was sampled. In a
    schedule by time, it uses the rate at the end of the job.
    """

    warm_up: Stretch | None = None
    """Length of the warm-up, in which the rate rises linearly from 0."""

    @model_validator(mode="after")
    def _in_one_unit(self) -> "Schedule":
        if len({value.unit for value in self.spans.values()}) > 1:
            written = ", ".join([f"{key} = {value}" for key, value in self.spans.items()])
            problem = f"must all be steps, all be rounds, or all be durations: {written}"
            raise SettingError("warm_up", str(self.warm_up), problem)
        return self

    @property
    def spans(self) -> dict[str, Span]:
        """All lengths, by key."""
        return {key: value for key, value in self if isinstance(value, Span)}

    @property
    def unit(self) -> str:
        """Unit of the schedule: "step", "round" or "second"."""
        return next((value.unit for value in self.spans.values()), "step")

    def factor(self, passed: float) -> float:
        """Return the factor of the learning rate at `passed` seconds, or in step or round number `passed`.

        Numbers start at 0.
        """
        if self.warm_up is not None:
            done = passed if self.unit == "second" else passed + 1
            if done < self.warm_up.length:
                return done / self.warm_up.length
            passed -= self.warm_up.length
        return self.after_warm_up(max(0.0, passed))

    @abstractmethod
    def after_warm_up(self, passed: float) -> float:
        """Return the factor at `passed` steps, rounds or seconds after the end of the warm-up."""


class ConstantRate(Schedule):
    """No change, except for the warm-up."""

    kind: Literal["constant"]

    def after_warm_up(self, passed: float) -> float:
        return 1.0


class StepDecay(Schedule):
    """The rate is multiplied by a factor at regular intervals."""

    kind: Literal["step"]
    every: Stretch
    """Interval between two changes."""
    decay: ShareAboveZero = 0.1
    """Factor at each change."""

    def after_warm_up(self, passed: float) -> float:
        return float(self.decay ** math.floor(passed / self.every.length))


class CosineDecay(Schedule):
    """The rate falls along half a cosine wave, and then stays constant.

    Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017; no restarts.
    """

    kind: Literal["cosine"]
    length: Stretch
    """Length of the fall, after the warm-up."""
    floor: Share = 0.0
    """Share of the rate that remains at the end."""

    def after_warm_up(self, passed: float) -> float:
        wave = (1 + math.cos(math.pi * min(1.0, passed / self.length.length))) / 2
        return self.floor + (1 - self.floor) * wave


RateSchedule = Annotated[ConstantRate | StepDecay | CosineDecay, Field(discriminator="kind")]
