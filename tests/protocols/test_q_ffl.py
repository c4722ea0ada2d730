"""q-FFL: q-FedAvg's step against numpy, federated averaging as a special case, and where it ends."""

import numpy as np
import pytest

from sim.errors import UserError
from tests.protocols.decoupled import own_data
from tests.protocols.test_fedavg import softmax_gradient
from tests.protocols.worlds import DIGITS, QUADRATIC, learner, make, optima, ran

FAIR = ("protocol.name=q-ffl", "data.clusters=4", "run.iterations=8", "run.duration=100 s")


def losses(x: np.ndarray, a: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """F_k [N] of quadratic clients at one x."""
    return a[:, 0] / 2 * ((x - mu) ** 2).sum(axis=1)


def fair_round(x: np.ndarray, models: np.ndarray, f: np.ndarray, q: float, p: np.ndarray) -> np.ndarray:
    """w - sum Delta_k / sum h_k, as the paper's algorithm 2 states it, with L = 1/.1."""
    lipschitz = 1 / 0.1
    changes = lipschitz * (x - models)
    delta = (f**q)[:, None] * changes
    h = q * f ** (q - 1) * (changes**2).sum(axis=1) + lipschitz * f**q
    return x - (p[:, None] * delta).sum(axis=0) / (p * h).sum()


@pytest.mark.parametrize("q", [0, 0.5, 1, 3])
def test_a_round_is_the_papers_algorithm_2(q: float) -> None:
    with ran(QUADRATIC, *FAIR, f"protocol.q={q}", "protocol.local_steps=3") as world:
        (a, mu), x = optima(world), np.zeros(3)
        for _ in range(7):  # the eighth has not been told yet
            models = mu + (1 - 0.1 * a) ** 3 * (x - mu)
            x = fair_round(x, models, losses(x, a, mu), q, np.full(4, 0.25))
        np.testing.assert_allclose(learner(world, 0).params.numpy(), x, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("weights", ["samples", "equal"])
def test_clients_count_as_they_have_samples(weights: str) -> None:
    text = DIGITS.replace(
        '{ kind = "permuted-clusters", clusters = 2, samples_per_client = 8 }',
        '{ kind = "dirichlet", alpha = 0.3 }',
    ).replace("batch_size = 4", "batch_size = 2000")
    options = ("protocol.name=q-ffl", "protocol.q=2", f"protocol.weights={weights}", "run.iterations=2")
    with ran(text, *options, "protocol.local_steps=1", "run.duration=100 s") as world:
        data = world.engine.data.train
        x = learner(world, 0).compute.initial().numpy().astype(np.float64)
        models, f = [], []
        for i, n in enumerate(data.counts):
            images, labels = own_data(world, i)
            features, y = images.numpy(), labels.numpy()
            logits = features @ x[: 10 * features.shape[1]].reshape(10, -1).T + x[-10:]
            logits = logits - logits.max(axis=1, keepdims=True)
            log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            f.append(-log_p[np.arange(n), y].mean())
            models.append(x - 0.1 * softmax_gradient(features, y, x))
        p = data.counts / data.counts.sum() if weights == "samples" else np.full(6, 1 / 6)
        x = fair_round(x, np.stack(models), np.array(f), 2, p)
        np.testing.assert_allclose(learner(world, 0).params.numpy(), x, atol=1e-5)


def test_without_fairness_it_is_federated_averaging() -> None:
    common = ("data.clusters=4", "protocol.local_steps=2", "run.iterations=5", "run.duration=100 s")
    found = []
    for name in ("protocol.name=q-ffl", "protocol.name=fedavg"):
        with ran(QUADRATIC, name, *common, *(("protocol.q=0",) if "ffl" in name else ())) as world:
            found.append(learner(world, 0).params.numpy())
    np.testing.assert_allclose(*found, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("q", [1, 4])
def test_it_ends_where_the_objective_is_stationary(q: int) -> None:
    """sum_k F_k^q grad F_k = 0."""
    long = ("protocol.local_steps=1", "run.iterations=200", "run.duration=400 s", "run.evaluate_every=400 s")
    with ran(QUADRATIC, "protocol.name=q-ffl", "data.clusters=4", f"protocol.q={q}", *long) as world:
        (a, mu), x = optima(world), learner(world, 0).params.numpy()
        pulls = (losses(x, a, mu) ** q)[:, None] * a * (x - mu)
        assert np.linalg.norm(pulls.sum(axis=0)) < 0.02 * np.linalg.norm(pulls, axis=1).max()


def test_a_client_at_its_optimum_has_no_say_and_breaks_nothing() -> None:
    """A loss of 0, with q below 1, whose power q - 1 is infinite."""
    options = ("protocol.name=q-ffl", "protocol.q=0.5", "data.distance=0", "run.iterations=3")
    with ran(QUADRATIC, *options) as world:
        assert np.isfinite(learner(world, 0).params.numpy()).all()


def test_a_schedule_is_refused() -> None:
    """L is the inverse of one learning rate."""
    with pytest.raises(
        UserError, match=r"training\.schedule = .*inverse of the loss's curvature; must be left out"
    ):
        make(DIGITS, "protocol.name=q-ffl", 'training.schedule={kind="step", every="9 steps"}')
