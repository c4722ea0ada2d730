"""Distributions: values, means, and refused parameters."""

import math
import re
from statistics import NormalDist, fmean, median, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sim.kernel.random import RandomStream
from sim.world.devices.speeds import StepTime
from sim.world.distributions import KINDS
from tests.lists import require_listed
from tests.world.quantities import constant, lognormal, normal, pareto, uniform

positive = st.floats(1e-6, 1e6)


def samples(distribution, n=20_000):
    draws = RandomStream(1, "sample")
    return [distribution.sample(draws) for _ in range(n)]


def test_a_constant_draws_nothing():
    draws = RandomStream(1)
    assert constant(0.25).sample(draws) == 0.25
    assert draws.uniform() == RandomStream(1).uniform()


def test_samples_are_functions_of_one_draw():
    assert uniform(2, 6).sample(RandomStream(4)) == 2 + 4 * RandomStream(4).uniform()
    assert lognormal(0.05, 0.5).sample(RandomStream(4)) == 0.05 * math.exp(0.5 * RandomStream(4).normal())
    assert lognormal(0.05, 0).sample(RandomStream(4)) == 0.05
    assert pareto(0.5, 2).sample(RandomStream(4)) == 0.5 * (1 - RandomStream(4).uniform()) ** -0.5


ALL = [constant(0.25), uniform(1, 3), normal(1, 1), lognormal(2, 0.5), pareto(1, 3)]


def test_every_kind_is_tested():
    require_listed([kind.__name__ for kind in KINDS], [general(each) for each in ALL], f"ALL in {__file__}")


def general(distribution):
    """The name of the kind of all quantities that this one is."""
    return next(kind.__name__ for kind in KINDS if isinstance(distribution, kind))


@pytest.mark.parametrize("distribution", ALL, ids=general)
def test_a_kind_refuses_step_times_that_are_always_0(distribution):
    """A run divides by the mean time of a step. A latency may be 0."""
    stated = distribution.model_dump(mode="json")
    zero = {key: "0 s" if re.fullmatch(r"[\d.]+ \w+", str(value)) else value for key, value in stated.items()}
    assert zero != stated
    with pytest.raises(ValidationError):
        TypeAdapter(StepTime).validate_python(zero)
        pytest.fail(f"give the largest value of {general(distribution)} the type L, or P if it is above 0")


@pytest.mark.parametrize("distribution", ALL[1:], ids=general)
def test_a_sample_takes_one_number(distribution):
    draws, other = RandomStream(4), RandomStream(4)
    distribution.sample(draws)
    other.uniform()
    assert draws.uniform() == other.uniform()


@pytest.mark.parametrize(
    ("distribution", "mean"),
    [(uniform(1, 3), 2), (lognormal(2, 0.5), 2 * math.exp(0.125)), (pareto(2, 3), 3)],
)
def test_the_mean_is_that_of_the_formula(distribution, mean):
    assert fmean(samples(distribution)) == pytest.approx(mean, rel=0.02)


def test_half_of_a_lognormal_lies_below_its_median():
    assert median(samples(lognormal(0.05, 0.5))) == pytest.approx(0.05, rel=0.02)


@pytest.mark.parametrize("normal", [normal(5, 1), normal(1, 1), normal(0, 2, 3), normal(0, 1, 20)])
def test_a_truncated_normal_has_the_moments_and_the_quantiles_of_the_formula(normal):
    # Johnson, Kotz, Balakrishnan, vol. 1, section 13.10.1: with the bound a in sigmas and h = pdf(a) / Q(a),
    # the mean is centre + sigma h and the variance sigma^2 (1 + a h - h^2).
    a = (normal.low - normal.mean) / normal.sigma
    above = math.erfc(a / math.sqrt(2)) / 2
    h = NormalDist().pdf(a) / above
    values = samples(normal)
    assert min(values) >= normal.low
    assert fmean(values) == pytest.approx(normal.mean + normal.sigma * h, rel=0.01)
    assert pvariance(values) == pytest.approx(normal.sigma**2 * (1 + a * h - h * h), rel=0.05)
    middle = -NormalDist().inv_cdf(above / 2)  # half of what is above the bound
    assert median(values) == pytest.approx(normal.mean + normal.sigma * middle, rel=0.01)


def test_a_normal_far_from_its_bound_is_not_truncated():
    whole = NormalDist(100, 1)
    assert normal(100, 1).sample(RandomStream(4)) == pytest.approx(
        whole.inv_cdf(RandomStream(4).uniform()), rel=1e-12
    )


@given(st.floats(0.001, 1e3), st.floats(0.001, 1e3), st.floats(0, 30), st.integers(0, 99))
def test_a_normal_stays_above_its_bound_wherever_it_is(centre, sigma, sigmas, seed):
    low = max(0.0, centre + sigma * sigmas)
    if low < centre + 30 * sigma:
        assert low <= normal(centre, sigma, low).sample(RandomStream(seed)) < math.inf


def test_the_lowest_draw_is_the_bound():
    class Zero:
        def uniform(self):
            return 0.0

    assert normal(5, 0.1).sample(Zero()) == 0.0
    assert pareto(0.25, 2).sample(Zero()) == 0.25


def test_a_pareto_has_the_tail_and_the_moments_of_the_formula():
    values = samples(pareto(2, 4))
    assert min(values) >= 2
    for factor in (1.25, 1.5, 2.0):
        share = sum(value > 2 * factor for value in values) / len(values)
        assert share == pytest.approx(factor**-4, abs=0.01)  # about three standard deviations at most
    assert pvariance(values) == pytest.approx(2**2 * 4 / ((4 - 1) ** 2 * (4 - 2)), rel=0.1)


@given(positive, positive, st.integers(0, 99))
def test_a_uniform_stays_within_its_bounds(one, two, seed):
    low, high = sorted((one, two))
    assert low <= uniform(low, high).sample(RandomStream(seed)) <= high
