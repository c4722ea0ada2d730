"""Distributions: values, means, and refused parameters."""

import math
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.world.distributions import Constant, LogNormal, Uniform
from sim.world.random import Draws

positive = st.floats(1e-6, 1e6)


def samples(distribution, n=20_000):
    draws = Draws(1, "sample")
    return [distribution.sample(draws) for _ in range(n)]


def test_a_constant_draws_nothing():
    draws = Draws(1)
    assert (Constant(0.25).sample(draws), Constant(0.25).mean()) == (0.25, 0.25)
    assert draws.uniform() == Draws(1).uniform()


def test_samples_are_functions_of_one_draw():
    assert Uniform(2, 6).sample(Draws(4)) == 2 + 4 * Draws(4).uniform()
    assert LogNormal(0.05, 0.5).sample(Draws(4)) == 0.05 * math.exp(0.5 * Draws(4).normal())
    assert LogNormal(0.05, 0).sample(Draws(4)) == 0.05


@pytest.mark.parametrize("distribution", [Uniform(1, 3), LogNormal(2, 0.5)])
def test_the_mean_is_that_of_the_samples(distribution):
    assert fmean(samples(distribution)) == pytest.approx(distribution.mean(), rel=0.02)


def test_half_of_a_lognormal_lies_below_its_median():
    assert median(samples(LogNormal(0.05, 0.5))) == pytest.approx(0.05, rel=0.02)


@given(positive, positive, st.integers(0, 99))
def test_a_uniform_stays_within_its_bounds(one, two, seed):
    low, high = sorted((one, two))
    assert low <= Uniform(low, high).sample(Draws(seed)) <= high


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Constant(-1.0), "value must be finite and not negative"),
        (lambda: Constant(math.nan), "value must be finite"),
        (lambda: Constant(math.inf), "value must be finite"),
        (lambda: Uniform(3, 2), "low <= high"),
        (lambda: Uniform(-1, 2), "low <= high"),
        (lambda: Uniform(0, math.inf), "finite"),
        (lambda: LogNormal(0, 1), "median must be finite and positive"),
        (lambda: LogNormal(1, -0.1), "sigma must be finite and not negative"),
        (lambda: LogNormal(1, math.nan), "sigma must be finite"),
    ],
)
def test_impossible_parameters_are_refused(make, rule):
    with pytest.raises(ValueError, match=rule):
        make()


def test_an_error_shows_the_distribution():
    with pytest.raises(ValueError, match=r"^Uniform\(low=3, high=2\): "):
        Uniform(3, 2)
