"""Distributions of times, losses and cuts in few words, as a scenario would state them."""

from typing import Any

from pydantic import TypeAdapter

from sim.world.distributions import Distribution
from sim.world.latency.kinds import Latency
from sim.world.loss.models import BurstyLoss, IndependentLoss

_times: TypeAdapter[Any] = TypeAdapter(Latency)


def _time(kind: str, **settings: Any) -> Distribution:
    distribution: Distribution = _times.validate_python({"kind": kind, **settings})
    return distribution


def constant(value_s: float) -> Distribution:
    return _time("constant", value=f"{value_s!r} s")


def uniform(low_s: float, high_s: float) -> Distribution:
    return _time("uniform", low=f"{low_s!r} s", high=f"{high_s!r} s")


def normal(mean_s: float, sigma_s: float, low_s: float = 0.0) -> Distribution:
    return _time("normal", mean=f"{mean_s!r} s", sigma=f"{sigma_s!r} s", low=f"{low_s!r} s")


def lognormal(median_s: float, sigma: float) -> Distribution:
    return _time("lognormal", median=f"{median_s!r} s", sigma=sigma)


def pareto(minimum_s: float, shape: float) -> Distribution:
    return _time("pareto", minimum=f"{minimum_s!r} s", shape=shape)


def independent(probability: float = 0.0) -> IndependentLoss:
    return IndependentLoss(kind="independent", probability=probability)


def bursty(good_s: float, bad_s: float, loss_good: float = 0.0, loss_bad: float = 1.0) -> BurstyLoss:
    return BurstyLoss(
        kind="gilbert-elliott",
        good=f"{good_s!r} s",  # type: ignore[arg-type]  # as it would stand in a file
        bad=f"{bad_s!r} s",  # type: ignore[arg-type]
        loss_good=loss_good,
        loss_bad=loss_bad,
    )
