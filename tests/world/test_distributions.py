"""Distributions: values, means, and refused parameters."""

import math
from statistics import NormalDist, fmean, median, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.world.distributions import Constant, LogNormal, Normal, Pareto, Uniform
from sim.world.random import Draws

positive = st.floats(1e-6, 1e6)


def samples(distribution, n=20_000):
    draws = Draws(1, "sample")
    return [distribution.sample(draws) for _ in range(n)]


def test_a_constant_draws_nothing():
    draws = Draws(1)
    assert Constant(0.25).sample(draws) == 0.25
    assert draws.uniform() == Draws(1).uniform()


def test_samples_are_functions_of_one_draw():
    assert Uniform(2, 6).sample(Draws(4)) == 2 + 4 * Draws(4).uniform()
    assert LogNormal(0.05, 0.5).sample(Draws(4)) == 0.05 * math.exp(0.5 * Draws(4).normal())
    assert LogNormal(0.05, 0).sample(Draws(4)) == 0.05
    assert Pareto(0.5, 2).sample(Draws(4)) == 0.5 * (1 - Draws(4).uniform()) ** -0.5


@pytest.mark.parametrize("distribution", [Uniform(1, 3), Normal(1, 1), LogNormal(2, 0.5), Pareto(1, 3)])
def test_a_sample_takes_one_number(distribution):
    draws, other = Draws(4), Draws(4)
    distribution.sample(draws)
    other.uniform()
    assert draws.uniform() == other.uniform()


@pytest.mark.parametrize(
    ("distribution", "mean"),
    [(Uniform(1, 3), 2), (LogNormal(2, 0.5), 2 * math.exp(0.125)), (Pareto(2, 3), 3)],
)
def test_the_mean_is_that_of_the_formula(distribution, mean):
    assert fmean(samples(distribution)) == pytest.approx(mean, rel=0.02)


def test_half_of_a_lognormal_lies_below_its_median():
    assert median(samples(LogNormal(0.05, 0.5))) == pytest.approx(0.05, rel=0.02)


@pytest.mark.parametrize("normal", [Normal(5, 1), Normal(1, 1), Normal(0, 2, low=3), Normal(0, 1, low=20)])
def test_a_truncated_normal_has_the_moments_and_the_quantiles_of_the_formula(normal):
    # Johnson, Kotz, Balakrishnan, vol. 1, section 13.10.1: with the bound a in sigmas and h = pdf(a) / Q(a),
    # the mean is centre + sigma h and the variance sigma^2 (1 + a h - h^2).
    a = (normal.low - normal.centre) / normal.sigma
    above = math.erfc(a / math.sqrt(2)) / 2
    h = NormalDist().pdf(a) / above
    values = samples(normal)
    assert min(values) >= normal.low
    assert fmean(values) == pytest.approx(normal.centre + normal.sigma * h, rel=0.01)
    assert pvariance(values) == pytest.approx(normal.sigma**2 * (1 + a * h - h * h), rel=0.05)
    middle = -NormalDist().inv_cdf(above / 2)  # half of what is above the bound
    assert median(values) == pytest.approx(normal.centre + normal.sigma * middle, rel=0.01)


def test_a_normal_far_from_its_bound_is_not_truncated():
    whole = NormalDist(100, 1)
    assert Normal(100, 1).sample(Draws(4)) == pytest.approx(whole.inv_cdf(Draws(4).uniform()), rel=1e-12)


@given(st.floats(-1e3, 1e3), st.floats(0.001, 1e3), st.floats(0, 30), st.integers(0, 99))
def test_a_normal_stays_above_its_bound_wherever_it_is(centre, sigma, sigmas, seed):
    low = max(0.0, centre + sigma * sigmas)
    if low < centre + 30 * sigma:
        assert low <= Normal(centre, sigma, low).sample(Draws(seed)) < math.inf


def test_the_lowest_draw_is_the_bound():
    class Zero:
        def uniform(self):
            return 0.0

    assert Normal(5, 0.1).sample(Zero()) == 0.0
    assert Pareto(0.25, 2).sample(Zero()) == 0.25


def test_a_pareto_has_the_tail_and_the_moments_of_the_formula():
    values = samples(Pareto(2, 4))
    assert min(values) >= 2
    for factor in (1.25, 1.5, 2.0):
        share = sum(value > 2 * factor for value in values) / len(values)
        assert share == pytest.approx(factor**-4, abs=0.01)  # about three standard deviations at most
    assert pvariance(values) == pytest.approx(2**2 * 4 / ((4 - 1) ** 2 * (4 - 2)), rel=0.1)


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
        (lambda: Normal(math.nan, 1), "centre must be finite"),
        (lambda: Normal(1, 0), "sigma must be finite and positive"),
        (lambda: Normal(1, 1, low=-1), "low must be finite and not negative"),
        (lambda: Normal(0, 1, low=40), "low leaves nothing"),
        (lambda: Pareto(0, 1), "minimum must be finite and positive"),
        (lambda: Pareto(1, 0.05), "shape must be finite and at least 0.1"),
    ],
)
def test_impossible_parameters_are_refused(make, rule):
    with pytest.raises(ValueError, match=rule):
        make()


def test_an_error_shows_the_distribution():
    with pytest.raises(ValueError, match=r"^Uniform\(low=3, high=2\): "):
        Uniform(3, 2)
