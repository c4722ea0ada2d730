"""Differential privacy: what is released is clipped and noisy as stated, and costs what it costs."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

from coterie import GaussianMechanism, epsilon
from tests.protocols.worlds import QUADRATIC, churn, learner, params, ran

DELTA = 1e-5


def mechanism(clip: float, noise_multiplier: float) -> tuple[Any, GaussianMechanism]:
    with ran(QUADRATIC) as simulation:
        client = learner(simulation, 0)
        return client, GaussianMechanism(client, clip, noise_multiplier)


def test_what_is_too_long_is_clipped_and_nothing_else_changes() -> None:
    client, private = mechanism(2.0, 0.0)
    rng = np.random.default_rng(1)
    for length in (0.0, 0.5, 1.99, 2.0, 2.01, 1e6):
        direction = rng.standard_normal(50)
        given = (length * direction / np.linalg.norm(direction)).astype(np.float32)
        found = private.release(client.vector(given)).numpy()
        if length < 2.0:
            np.testing.assert_array_equal(found, given)
        assert np.linalg.norm(found.astype(float)) <= 2.0 * (1 + 1e-6)
        np.testing.assert_allclose(found, given * min(1.0, 2.0 / max(length, 1e-30)), rtol=1e-5)
    assert private.releases == 6


def test_the_noise_is_normal_of_the_deviation_that_is_stated_and_never_the_same() -> None:
    client, private = mechanism(0.5, 3.0)
    zeros = client.vector(np.zeros(20_000))
    first, second = private.release(zeros).numpy(), private.release(zeros).numpy()
    for noise in (first, second):
        assert abs(noise.mean()) < 4 * 1.5 / math.sqrt(20_000)
        assert noise.var() == pytest.approx(1.5**2, rel=0.05)
        assert np.mean(np.abs(noise) < 1.5) == pytest.approx(0.6827, abs=0.02)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03


def test_other_clients_and_seeds_have_other_noise_and_runs_repeat_it() -> None:
    def noise(seed: int, index: int) -> list[float]:
        with ran(QUADRATIC, f"run.seed={seed}") as simulation:
            client = learner(simulation, index)
            zeros = client.vector(np.zeros(3))
            released: list[float] = GaussianMechanism(client, 1.0, 1.0).release(zeros).numpy().tolist()
            return released

    assert noise(1, 0) == noise(1, 0)
    assert noise(1, 0) != noise(1, 1) != noise(2, 1)


def test_without_noise_all_else_is_drawn_as_before() -> None:
    """Another stream: who picks peers picks the same ones."""
    client, private = mechanism(1.0, 1.0)
    before = str(client.rng.bit_generator.state)
    private.release(client.params)
    assert str(client.rng.bit_generator.state) == before


def test_a_client_that_comes_back_afresh_has_released_what_it_had() -> None:
    """And its noise goes on: the same noise again would tell what is below it."""
    back = churn("crash", 0, "2 s") + churn("rejoin", 0, "3 s", "fresh")
    with ran(QUADRATIC + back, prepare=with_a_mechanism) as simulation:
        before, after = MECHANISMS["client-0"]
        assert before is not after and before.releases == after.releases == 1
        zeros = learner(simulation, 0).vector(np.zeros(3))
        assert (after.release(zeros).numpy() != FIRST["client-0"]).all()
        assert len(params(simulation)) == 4


MECHANISMS: dict[str, list[GaussianMechanism]] = {}
FIRST: dict[str, np.ndarray] = {}


def with_a_mechanism(simulation: Any) -> None:
    """Each life of a client makes one; the first life releases a vector."""
    MECHANISMS.clear()
    for client in simulation.clients:

        def fresh(make: Any = client.fresh) -> Any:
            actor = make()
            made = GaussianMechanism(actor, 1.0, 1.0)
            if not MECHANISMS.setdefault(actor.name, []):
                FIRST[actor.name] = made.release(actor.vector(np.zeros(3))).numpy()
            MECHANISMS[actor.name].append(made)
            return actor

        client.fresh = fresh


@pytest.mark.parametrize(("clip", "multiplier"), [(0.0, 1.0), (math.inf, 1.0), (1.0, -1.0), (1.0, math.nan)])
def test_what_makes_no_sense_is_refused(clip: float, multiplier: float) -> None:
    with pytest.raises(ValueError, match=r"clip must be above 0|noise_multiplier must be 0 or more"):
        mechanism(clip, multiplier)


# --- what it costs ---


def exact(deviation: float) -> float:
    """The smallest epsilon of one release: Balle and Wang (2018), theorem 8, solved for epsilon."""

    def delta(found: float) -> float:
        half, ratio = 1 / (2 * deviation), found * deviation
        return float(norm.cdf(half - ratio) - math.exp(found) * norm.cdf(-half - ratio) - DELTA)

    return float(brentq(delta, 1e-6, 100.0))


def by_renyi(deviation: float, releases: int) -> float:
    """The closed form: releases alpha / (2 s^2), converted at the best alpha (Balle et al. 2020)."""

    def at(log: float) -> float:
        alpha = 1 + math.exp(log)
        spent = releases * alpha / (2 * deviation**2)
        return spent + math.log((alpha - 1) / alpha) - (math.log(DELTA) + math.log(alpha)) / (alpha - 1)

    return float(minimize_scalar(at, bounds=(-6, 9), method="bounded").fun)


@pytest.mark.parametrize(("deviation", "releases"), [(0.7, 1), (1.0, 1), (4.0, 1), (2.0, 30), (30.0, 1000)])
def test_the_cost_is_that_of_the_closed_form(deviation: float, releases: int) -> None:
    pytest.importorskip("opacus", reason="opacus is not installed")
    found = epsilon(deviation, releases, DELTA)
    assert by_renyi(deviation, releases) * (1 - 1e-9) <= found <= 1.01 * by_renyi(deviation, releases)
    # n releases are one of a deviation smaller by sqrt(n).
    assert exact(deviation / math.sqrt(releases)) < found < 1.35 * exact(deviation / math.sqrt(releases))


def test_known_costs() -> None:
    pytest.importorskip("opacus", reason="opacus is not installed")
    assert exact(1.0) == pytest.approx(4.3767, abs=1e-3)  # of one release with noise as large as the norm
    assert 4.3767 < epsilon(1.0, 1, DELTA) < 4.8
    assert epsilon(1.0, 100, DELTA, share=0.01) < epsilon(1.0, 100, DELTA) / 10


def test_nothing_costs_nothing_and_no_noise_everything() -> None:
    assert (epsilon(1.0, 0, DELTA), epsilon(0.0, 1, DELTA)) == (0.0, math.inf)
    for delta, share in ((0.0, 1.0), (1.0, 1.0), (DELTA, 0.0), (DELTA, 1.5)):
        with pytest.raises(ValueError, match="delta must be above 0 and below 1"):
            epsilon(1.0, 1, delta, share)


def test_without_opacus_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opacus", None)
    monkeypatch.setitem(__import__("sys").modules, "opacus.accountants.analysis", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"needs the package opacus; pip install 'coterie\[privacy\]'"
    ):
        epsilon(1.0, 12345, DELTA)
