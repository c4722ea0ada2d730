"""Distributions from their sections in a scenario."""

from typing import Any

from sim.world.distributions import Constant, Distribution, LogNormal, Uniform


def distribution(settings: Any) -> Distribution:
    """A distribution from its section in a scenario."""
    match settings.kind:
        case "constant":
            return Constant(settings.value)
        case "uniform":
            return Uniform(settings.low, settings.high)
        case "lognormal":
            return LogNormal(settings.median, settings.sigma)
    raise AssertionError(f"no distribution is called {settings.kind!r}")
