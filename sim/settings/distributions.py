"""Distributions of times, speeds and bandwidths, as written in a scenario file.

The kinds are the same for every quantity: each is written down once, for any quantity, and then named for
each of them, so that its values carry their units.
"""

from typing import Annotated, Generic, Literal, Self, TypeVar

from pydantic import Field, model_validator

from protocols.settings import (
    Bandwidth,
    BandwidthOrUnlimited,
    Compute,
    Duration,
    PositiveDuration,
    SettingError,
    Settings,
    Within,
    default,
)
from sim.settings.shared import SigmaOfLog, constant

Q = TypeVar("Q", bound=float)


class _Uniform(Settings, Generic[Q]):
    kind: Literal["uniform"]
    low: Q
    """Smallest value."""
    high: Q
    """Largest value."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            written = self.model_dump(mode="json")
            raise SettingError("high", written["high"], f"must be at least low ({written['low']})")
        return self


class _Normal(Settings, Generic[Q]):
    kind: Literal["normal"]
    mean: Q
    """Mean before the truncation."""
    sigma: Q
    """Standard deviation before the truncation, in the same unit."""
    low: Q
    """Smallest value: the distribution is cut off here."""

    @model_validator(mode="after")
    def _leaves_something(self) -> Self:
        if self.low > self.mean + 30 * self.sigma:
            written = self.model_dump(mode="json")
            raise SettingError("low", written["low"], "must be at most 30 sigma above the mean")
        return self


class _LogNormal(Settings, Generic[Q]):
    kind: Literal["lognormal"]
    median: Q
    """Half of the values are below it."""
    sigma: SigmaOfLog
    """Standard deviation of the logarithm; 0.5 makes one value in six more than 1.65 times the median."""


class _Pareto(Settings, Generic[Q]):
    kind: Literal["pareto"]
    minimum: Q
    """Smallest value, and the likeliest."""
    shape: Annotated[float, Field(ge=0.1), Within(0.1, 1000)]
    """The share (minimum / x)^shape lies above x; from 1 downwards the mean is infinite."""


# Times ----------------------------------------------------------------------------------------------------


class ConstantTime(Settings):
    """The same time always."""

    kind: Literal["constant"] = "constant"
    value: Duration
    """The time."""


class UniformTime(_Uniform[Duration]):
    """Every time between two bounds equally likely."""


class NormalTime(_Normal[Duration]):
    """Normally distributed, cut off below."""

    sigma: PositiveDuration
    """Standard deviation before the truncation, in the same unit."""
    low: Duration = default("0 s")
    """Smallest value: the distribution is cut off here."""


class LogNormalTime(_LogNormal[PositiveDuration]):
    """Logarithm normally distributed: most near the median, a long tail of slow ones."""


class ParetoTime(_Pareto[PositiveDuration]):
    """Heavy-tailed: most near the minimum, a few extremely slow."""


# Speeds ---------------------------------------------------------------------------------------------------


class ConstantSpeed(Settings):
    """The same speed for every client."""

    kind: Literal["constant"] = "constant"
    value: Compute
    """The speed."""


class UniformSpeed(_Uniform[Compute]):
    """Every speed between two bounds equally likely."""


class NormalSpeed(_Normal[Compute]):
    """Normally distributed, cut off below; the bound must be stated, as a device without speed never ends."""


class LogNormalSpeed(_LogNormal[Compute]):
    """Logarithm normally distributed."""


class ParetoSpeed(_Pareto[Compute]):
    """Heavy-tailed: most near the minimum, a few extremely fast."""


# Bandwidths -----------------------------------------------------------------------------------------------


class ConstantBandwidth(Settings):
    """The same bandwidth for every client."""

    kind: Literal["constant"] = "constant"
    value: BandwidthOrUnlimited
    """The bandwidth."""


class UniformBandwidth(_Uniform[Bandwidth]):
    """Every bandwidth between two bounds equally likely."""


class NormalBandwidth(_Normal[Bandwidth]):
    """Normally distributed, cut off below; the bound must be stated, as nothing passes without bandwidth."""


class LogNormalBandwidth(_LogNormal[Bandwidth]):
    """Logarithm normally distributed."""


class ParetoBandwidth(_Pareto[Bandwidth]):
    """Heavy-tailed: most near the minimum, a few extremely fast."""


class PhoneBandwidth(Settings):
    """Mean measured bandwidth of a real phone, drawn for each client with replacement.

    Uplink and downlink of a client are those of the same phone. (19 phones, of FLASH: Yang et al., WWW 2021.)
    """

    kind: Literal["trace"]
    source: Literal["phones"]
    """The trace: `device-traces/phone_bandwidth.csv` in the data folder."""
    unit: Literal["kbit/s", "kB/s"] = "kbit/s"
    """What the trace's numbers mean, which its source leaves open; the default is this simulator's choice."""


BandwidthDistribution = Annotated[
    Annotated[
        ConstantBandwidth
        | UniformBandwidth
        | NormalBandwidth
        | LogNormalBandwidth
        | ParetoBandwidth
        | PhoneBandwidth,
        Field(discriminator="kind"),
    ],
    constant(BandwidthOrUnlimited),
]
