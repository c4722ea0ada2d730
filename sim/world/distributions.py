"""Distributions of non-negative quantities: durations (seconds), speeds (FLOP/s), bandwidths (bit/s).

A distribution is a value; the randomness comes from the caller's `Draws`, so that each link and each client
draws from its own stream.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import NormalDist

from sim.world.random import Draws

_standard_normal = NormalDist()
# With less than these, one value in 2^53 would be beyond the range of numbers.
_SMALLEST_SHAPE = 0.1
_SMALLEST_SHARE = 1e-290


class Distribution(ABC):
    """A distribution on [0, infinity). Its parameters are checked when it is made: ValueError."""

    @abstractmethod
    def sample(self, draws: Draws) -> float:
        """One value, in the unit of the parameters; takes at most one number from `draws`."""


@dataclass(frozen=True, slots=True)
class Constant(Distribution):
    """Always `value`; draws nothing."""

    value: float

    def __post_init__(self) -> None:
        _require(0 <= self.value < math.inf, self, "value must be finite and not negative")

    def sample(self, draws: Draws) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Uniform(Distribution):
    """Uniform between `low` and `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _require(
            0 <= self.low <= self.high < math.inf, self, "0 <= low <= high must hold, and both be finite"
        )

    def sample(self, draws: Draws) -> float:
        return self.low + (self.high - self.low) * draws.uniform()


@dataclass(frozen=True, slots=True)
class LogNormal(Distribution):
    """The exponential of a normal variable: half of the values lie below `median`.

    `sigma` is the standard deviation of the logarithm.
    """

    median: float
    sigma: float

    def __post_init__(self) -> None:
        _require(0 < self.median < math.inf, self, "median must be finite and positive")
        _require(0 <= self.sigma < math.inf, self, "sigma must be finite and not negative")

    def sample(self, draws: Draws) -> float:
        return self.median * math.exp(self.sigma * draws.normal())


@dataclass(frozen=True, slots=True)
class Normal(Distribution):
    """Normal around `centre` with standard deviation `sigma`, given that it is `low` or more.

    `centre` and `sigma` are those before the truncation: it raises the mean and narrows the spread.
    """

    centre: float
    sigma: float
    low: float = 0.0

    def __post_init__(self) -> None:
        _require(math.isfinite(self.centre), self, "centre must be finite")
        _require(0 < self.sigma < math.inf, self, "sigma must be finite and positive")
        _require(0 <= self.low < math.inf, self, "low must be finite and not negative")
        _require(self._share_above() >= _SMALLEST_SHARE, self, "low leaves nothing of it")

    def sample(self, draws: Draws) -> float:
        # By inversion of the truncated upper tail, Q(z) = Q(low) (1 - u), which stays exact where low lies
        # far above the centre and 1 - Q would be 1.
        u = draws.uniform()
        if u == 0:  # the bound itself, where Q(low) may be 1 and the quantile infinite
            return self.low
        z = -_standard_normal.inv_cdf(self._share_above() * (1 - u))
        return max(self.low, self.centre + self.sigma * z)  # rounding must not undercut the bound

    def _share_above(self) -> float:
        """Q(low): how much of the whole normal distribution lies above the bound."""
        return 0.5 * math.erfc((self.low - self.centre) / self.sigma / math.sqrt(2))


@dataclass(frozen=True, slots=True)
class Pareto(Distribution):
    """Heavy-tailed: P(X > x) = (minimum / x)^shape from `minimum` on.

    The mean is infinite for a `shape` of 1 or less, the variance for 2 or less.
    """

    minimum: float
    shape: float

    def __post_init__(self) -> None:
        _require(0 < self.minimum < math.inf, self, "minimum must be finite and positive")
        _require(
            _SMALLEST_SHAPE <= self.shape < math.inf,
            self,
            f"shape must be finite and at least {_SMALLEST_SHAPE}",
        )

    def sample(self, draws: Draws) -> float:
        return self.minimum * (1 - draws.uniform()) ** (-1 / self.shape)


@dataclass(frozen=True, slots=True)
class Weibull(Distribution):
    """Weibull: 1 - 1/e of the values lie below `scale`; with `shape` 1 it is exponential."""

    scale: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        _require(0 < self.scale < math.inf, self, "scale must be finite and positive")
        _require(
            _SMALLEST_SHAPE <= self.shape < math.inf,
            self,
            f"shape must be finite and at least {_SMALLEST_SHAPE}",
        )

    def sample(self, draws: Draws) -> float:
        return self.scale * draws.exponential() ** (1 / self.shape)


def _require(holds: bool, distribution: Distribution, rule: str) -> None:
    if not holds:
        raise ValueError(f"{distribution}: {rule}")
