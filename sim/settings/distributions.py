"""Distributions of times and of speeds, as written in a scenario file."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from protocols.settings import Compute, Duration, PositiveDuration, SettingError, Settings
from sim.settings.shared import constant


class ConstantTime(Settings):
    """The same time always."""

    kind: Literal["constant"] = "constant"
    value: Duration
    """The time."""


class UniformTime(Settings):
    """Every time between two bounds equally likely."""

    kind: Literal["uniform"]
    low: Duration
    """Smallest time."""
    high: Duration
    """Largest time."""

    @model_validator(mode="after")
    def _ordered(self) -> "UniformTime":
        if self.high < self.low:
            raise SettingError("high", self.high, f"must be at least low ({self.low:g} s)")
        return self


class LogNormalTime(Settings):
    """Logarithm normally distributed: most near the median, a long tail of slow ones."""

    kind: Literal["lognormal"]
    median: PositiveDuration
    """Half of the times are below it."""
    sigma: Annotated[float, Field(ge=0)]
    """Standard deviation of the logarithm; 0.5 makes one time in six more than 1.65 times the median."""


TimeDistribution = Annotated[
    Annotated[ConstantTime | UniformTime | LogNormalTime, Field(discriminator="kind")], constant(Duration)
]


class ConstantSpeed(Settings):
    """The same speed for every client."""

    kind: Literal["constant"] = "constant"
    value: Compute
    """The speed."""


class UniformSpeed(Settings):
    """Every speed between two bounds equally likely."""

    kind: Literal["uniform"]
    low: Compute
    """Smallest speed."""
    high: Compute
    """Largest speed."""

    @model_validator(mode="after")
    def _ordered(self) -> "UniformSpeed":
        if self.high < self.low:
            raise SettingError("high", self.high, f"must be at least low ({self.low:g} FLOP/s)")
        return self


class LogNormalSpeed(Settings):
    """Logarithm normally distributed."""

    kind: Literal["lognormal"]
    median: Compute
    """Half of the clients are slower."""
    sigma: Annotated[float, Field(ge=0)]
    """Standard deviation of the logarithm."""


SpeedDistribution = Annotated[
    Annotated[ConstantSpeed | UniformSpeed | LogNormalSpeed, Field(discriminator="kind")], constant(Compute)
]
