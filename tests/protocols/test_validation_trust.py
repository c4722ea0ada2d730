"""Trust by validation performance: its weights by scipy's softmax, rounds against numpy, and bad weather."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from protocols.decentralized.validation_trust import trust_weights
from sim.errors import UserError
from tests.protocols.decoupled import own_data
from tests.protocols.test_fedavg import softmax_gradient
from tests.protocols.test_ifca import loss
from tests.protocols.weather import MINUTES, WEATHER
from tests.protocols.worlds import DIGITS, QUADRATIC, learner, make, optima, params, ran, start_from
from tests.simulation.test_language_models import run

TRUST = ("protocol.name=validation-trust", "protocol.losses_on=train", "protocol.patience=4 s")
LOSSES = st.lists(st.floats(0, 6) | st.just(np.inf), min_size=2, max_size=7)


@given(LOSSES, st.sampled_from(["loss", "perplexity"]))
def test_weights_are_a_softmax(losses: list[float], judged_by: Any) -> None:
    found = trust_weights(losses, judged_by)
    if np.isinf(losses).all():
        assert found.tolist() == [1.0] + [0.0] * (len(losses) - 1)
        return
    finite = np.isfinite(losses)
    measured = np.array(losses)[finite]
    expected = softmax(-np.exp(measured) if judged_by == "perplexity" else -measured)
    np.testing.assert_allclose(found[finite], expected, rtol=1e-9)
    assert not found[~finite].any()


def test_perplexities_that_no_number_holds_weigh_nothing() -> None:
    assert trust_weights([900.0, 1.0], "perplexity").tolist() == [0.0, 1.0]
    assert trust_weights([900.0, 950.0], "perplexity").tolist() == [1.0, 0.0]


@pytest.mark.parametrize("judged_by", ["loss", "perplexity"])
@pytest.mark.parametrize("warm_up", [0, 2])
def test_each_round_is_the_papers(judged_by: str, warm_up: int) -> None:
    """Two clusters of two, whole batches; the optima are so near that nobody's weight is 0."""
    own = (f"protocol.judged_by={judged_by}", f"protocol.warm_up={warm_up}", "protocol.local_steps=2")
    world_keys = ("data.clusters=2", "run.iterations=5", "run.duration=1 min")
    x = np.random.default_rng(4).normal(size=(4, 3))
    with ran(QUADRATIC, *TRUST, *own, *world_keys, prepare=lambda made: start_from(made, x)) as world:
        a, mu = optima(world)
        for number in range(5):
            for _ in range(2):
                x = x - 0.1 * a * (x - mu)
            if number < warm_up:
                continue
            losses = a / 2 * ((x[None] - mu[:, None]) ** 2).sum(axis=-1)
            w = softmax(-np.exp(losses) if judged_by == "perplexity" else -losses, axis=1)
            x = w @ x
        np.testing.assert_allclose(params(world), x, atol=1e-5)
        weights = world.observer.metrics.weights()
        assert len(weights) == 12 and min(weights.values()) > 0
        found = [weights[pair] for pair in sorted(weights)]
        np.testing.assert_allclose(found, w[~np.eye(4, dtype=bool)], rtol=1e-3)


def test_models_are_judged_by_what_is_held_back() -> None:
    """Two rounds of logistic regression with whole batches, of classes."""
    split = ("data.validation_share=0.25", "data.partition.samples_per_client=12", "training.batch_size=9")
    with ran(DIGITS, TRUST[0], *split, "run.iterations=2", "run.duration=1 min") as world:
        owned = [own_data(world, i) for i in range(6)]
        held = world.engine.data.validation
        kept = [held.gather(np.array([i]), np.arange(3)[None]) for i in range(6)]
        trained_on = [(x.flatten(1).numpy(), y.numpy()) for x, y in owned]
        judged_by = [(x[0].flatten(1).cpu().numpy(), y[0].cpu().numpy()) for x, y in kept]
        models = [learner(world, i).compute.initial().numpy().astype(float) for i in range(6)]
        for _ in range(2):
            models = [m - 0.1 * softmax_gradient(*own, m) for own, m in zip(trained_on, models, strict=True)]
            losses = np.array([[loss(*mine, model) for model in models] for mine in judged_by])
            models = list(softmax(-np.exp(losses), axis=1) @ np.stack(models))
        np.testing.assert_allclose(params(world), np.stack(models), atol=1e-5)


def test_who_has_diverged_is_not_mixed_in() -> None:
    start = np.zeros((4, 3))
    start[2] = np.nan
    with ran(QUADRATIC, *TRUST, "run.iterations=1", prepare=lambda made: start_from(made, start)) as world:
        found, weights = params(world), world.observer.metrics.weights()
        assert np.isfinite(found).all()
        assert [weights[i, 2] for i in (0, 1, 3)] == [0.0] * 3


def test_a_peers_adapter_that_helps_is_mixed_in(tmp_path: Path) -> None:
    """Texts of three languages, two clients of each."""
    method = ("protocol={name='validation-trust'}", "run.duration=8 s", "clients.count=6")
    found = run(tmp_path, *method)
    assert np.isfinite(found.summary["perplexity"]["mean"])
    assert found.summary["graph"]["weights_are_shares"]


@pytest.mark.parametrize("weather", WEATHER)
def test_it_goes_on_in_bad_weather(weather: str) -> None:
    """Rounds wait for a straggler, and nobody for one that is gone; it ends, and nobody is left behind."""
    text, *options = WEATHER[weather]
    with ran(QUADRATIC + text, *TRUST, *MINUTES, *options) as world:
        assert world.loop.time() == 180.0
        done = [client.actor.iterations for client in world.clients_up if client.actor]
        assert len(done) == (3 if weather == "churn" else 4)
        assert min(done) >= (5 if weather == "straggler" else 30)
        assert np.isfinite([client.actor.params.numpy() for client in world.clients_up if client.actor]).all()


def test_held_back_samples_and_a_common_start_are_needed() -> None:
    with pytest.raises(UserError, match=r"data\.validation_share.*compares models on"):
        make(DIGITS, TRUST[0])
    with pytest.raises(UserError, match=r"model\.initialisation.*has little effect"):
        make(DIGITS, *TRUST, "model.initialisation=independent")
    make(DIGITS, TRUST[0], "protocol.alone=true").close()
