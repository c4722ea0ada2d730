"""Distributions of non-negative quantities: latencies and durations (seconds), speeds (FLOP/s).

A distribution is a value; the randomness comes from the caller's `Draws`, so that each link and each client
draws from its own stream.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from sim.world.random import Draws


class Distribution(ABC):
    """A distribution on [0, infinity). Its parameters are checked when it is made: ValueError."""

    @abstractmethod
    def sample(self, draws: Draws) -> float:
        """One value, in the unit of the parameters; takes at most one number from `draws`."""

    @abstractmethod
    def mean(self) -> float:
        """The expected value, in the same unit."""


@dataclass(frozen=True, slots=True)
class Constant(Distribution):
    """Always `value`; draws nothing."""

    value: float

    def __post_init__(self) -> None:
        _require(0 <= self.value < math.inf, self, "value must be finite and not negative")

    def sample(self, draws: Draws) -> float:
        return self.value

    def mean(self) -> float:
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

    def mean(self) -> float:
        return (self.low + self.high) / 2


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

    def mean(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2)


def _require(holds: bool, distribution: Distribution, rule: str) -> None:
    if not holds:
        raise ValueError(f"{distribution}: {rule}")
