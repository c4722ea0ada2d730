"""Distributions from their sections in a scenario."""

from typing import Any

from sim.world.distributions import Constant, Distribution, LogNormal, Normal, Pareto, Uniform


def distribution(settings: Any) -> Distribution:
    """A distribution from its section in a scenario."""
    match settings.kind:
        case "constant":
            return Constant(settings.value)
        case "uniform":
            return Uniform(settings.low, settings.high)
        case "normal":
            return Normal(settings.mean, settings.sigma, settings.low)
        case "lognormal":
            return LogNormal(settings.median, settings.sigma)
        case "pareto":
            return Pareto(settings.minimum, settings.shape)
    raise AssertionError(f"no distribution is called {settings.kind!r}")
