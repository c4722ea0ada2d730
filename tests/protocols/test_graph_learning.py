"""CGL: similarity, loss and gradient against other implementations, and what its steps do to two clusters."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, minimize
from torch import Tensor

from protocols.framework.mathematics import project_on_simplex
from protocols.mapl.graph_learning import (
    AUTHORS_CODE,
    NEGLIGIBLE,
    CollaborationWeights,
    GraphLearning,
    add_peer_share,
    confidences,
    graph_gradient,
    head_similarity,
    learn_weights,
)
from tests.draws import examples

Floats = NDArray[np.float64]
CLASSES = 4
PAPER = GraphLearning()
SOFT = replace(AUTHORS_CODE, step="gradient")


def head(weights: Floats, biases: float = 0.0) -> Floats:
    """A flat head with these weights [K, d_z] and equal biases."""
    return np.concatenate([weights.ravel(), np.full(len(weights), biases)])


def clustered_heads(
    cosine: float, clients: int = 20, clusters: int = 2, noise: float = 0.0, seed: int = 0
) -> list[Floats]:
    """Heads of which those in a cluster have this cosine, in every row, and others 0 (but for the noise)."""
    rng = np.random.default_rng(seed)
    size = clients // clusters
    found = []
    for client in range(clients):
        row = np.zeros(clusters + clients)
        row[client // size] = math.sqrt(cosine)
        row[clusters + client] = math.sqrt(1 - cosine)
        rows = np.tile(row, (CLASSES, 1)) * np.arange(1, CLASSES + 1)[:, None]
        found.append(head(rows + noise * rng.normal(size=rows.shape), biases=rng.normal()))
    return found


def trajectory(heads: list[Floats], how: GraphLearning, rounds: int, client: int = 0) -> list[Floats]:
    """Weights [M] of a client, its own included, after each of so many updates, from 1/M each."""
    m = len(heads)
    peers = {str(j): heads[j] for j in range(m) if j != client}
    samples = dict.fromkeys(peers, 300)
    now = CollaborationWeights(1 / m, dict.fromkeys(peers, 1 / m))
    found = []
    for _ in range(rounds):
        now = learn_weights(now, heads[client], peers, 300, samples, CLASSES, how)
        found.append(np.array([now.itself if j == client else now.peers[str(j)] for j in range(m)]))
    return found


# --- similarity ---------------------------------------------------------------------------------------------


def test_whole_similarity_is_the_cosine_of_the_weights() -> None:
    rng = np.random.default_rng(1)
    own, peer = rng.normal(size=(2, CLASSES, 6))
    flat_own, flat_peer = torch.tensor(own).flatten(), torch.tensor(peer).flatten()
    expected = torch.nn.functional.cosine_similarity(flat_own, flat_peer, dim=0).item()
    found = head_similarity(head(own, 3.0), {"a": head(peer, -5.0)}, CLASSES)  # biases do not count
    assert found == {"a": pytest.approx(expected)}


def test_similarity_per_class_is_the_mean_cosine_over_the_largest() -> None:
    rng = np.random.default_rng(2)
    own = rng.normal(size=(CLASSES, 6))
    peers = {name: own + scale * rng.normal(size=own.shape) for name, scale in (("a", 1.0), ("b", 3.0))}
    means = {
        name: torch.nn.functional.cosine_similarity(torch.tensor(own), torch.tensor(peer), dim=1)
        .mean()
        .item()
        for name, peer in peers.items()
    }
    flat = {name: head(peer) for name, peer in peers.items()}
    found = head_similarity(head(own), flat, CLASSES, "per-class")
    assert max(means.values()) > 0
    assert found == {name: pytest.approx(mean / max(means.values())) for name, mean in means.items()}


def test_similarity_by_hand() -> None:
    own = head(np.array([[1.0, 0.0], [0.0, 2.0]]))
    peers = {"same class": head(np.array([[3.0, 0.0], [4.0, 0.0]])), "none": head(np.zeros((2, 2)))}
    # <(1, 0, 0, 2), (3, 0, 4, 0)> = 3, lengths sqrt 5 and 5; per class 1 and 0.
    assert head_similarity(own, peers, 2) == {"same class": pytest.approx(0.6 / math.sqrt(5)), "none": 0.0}
    assert head_similarity(own, peers, 2, "per-class") == {"same class": 1.0, "none": 0.0}
    assert head_similarity(own, peers, 2, "none") == {"same class": 1.0, "none": 1.0}
    zero = head(np.zeros((2, 2)))
    assert head_similarity(zero, peers, 2) == {"same class": 0.0, "none": 0.0}


def test_dividing_by_the_largest_never_turns_the_order_round() -> None:
    own = head(np.array([[1.0, 0.0]]))
    peers = {"far": head(np.array([[-1.0, 0.0]])), "less far": head(np.array([[-1.0, 1.0]]))}
    found = head_similarity(own, peers, 1, "per-class")
    assert found == {"far": pytest.approx(-1.0), "less far": pytest.approx(-math.sqrt(0.5))}
    assert head_similarity(own, {}, 1, "per-class") == {}


@examples(60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 11), st.integers(1, 130), st.integers(1, 9))
def test_no_bit_of_a_similarity_depends_on_the_other_peers(
    seed: int, classes: int, width: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    own, *others = rng.normal(size=(count + 1, classes * (width + 1))).astype(np.float32)
    peers = {str(number): other for number, other in enumerate(others)}
    together = head_similarity(own, peers, classes)
    assert together == {
        peer: head_similarity(own, {peer: other}, classes)[peer] for peer, other in peers.items()
    }
    rows, found = own[:-classes].reshape(classes, -1).astype(float), {}
    for peer, other in peers.items():  # as numpy computes them for one peer
        theirs = other[:-classes].reshape(classes, -1).astype(float)
        lengths = np.linalg.norm(rows, axis=-1) * np.linalg.norm(theirs, axis=-1)
        found[peer] = float(((rows * theirs).sum(axis=-1) / lengths).mean())
    if max(found.values()) > 0:
        found = {peer: cosine / max(found.values()) for peer, cosine in found.items()}
    assert head_similarity(own, peers, classes, "per-class") == found


def test_heads_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a head of 4 classes"):
        head_similarity(np.zeros(4 * 3 + 1), {}, 4)
    with pytest.raises(ValueError, match="a head of 4 classes"):
        head_similarity(np.zeros(4), {}, 4)
    with pytest.raises(ValueError, match="the head of b has rows of 3, not 2"):
        head_similarity(np.zeros(12), {"b": np.zeros(16)}, 4)
    with pytest.raises(ValueError, match='unknown similarity "cosine"'):
        head_similarity(np.ones(12), {"b": np.ones(12)}, 4, "cosine")


def test_confidences() -> None:
    np.testing.assert_allclose(confidences([100, 300], "samples"), [0.25, 0.75])
    np.testing.assert_allclose(confidences([100, 300], "equal"), [0.5, 0.5])
    np.testing.assert_allclose(confidences([100, 300], "none"), [1, 1])
    np.testing.assert_allclose(confidences([0, 0], "samples"), [0.5, 0.5])


# --- loss and gradient --------------------------------------------------------------------------------------


def eq_7(weights: Tensor, scores: Tensor, gamma: Tensor, own: int, how: GraphLearning) -> Tensor:
    """Eqs. 7 and 8 in torch; a fixed degree where it has no gradient."""
    degree = torch.stack([w for j, w in enumerate(weights) if j != own]).sum()
    degree = degree if how.degree_gradient else degree.detach()
    norm = (weights**2).sum() ** 0.5 if how.norm == "l2" else weights.abs().sum()
    regulariser = how.beta * norm - (degree + how.epsilon).log()
    return how.mu1 * gamma.dot(weights * scores) + how.mu2 * regulariser


@pytest.mark.parametrize("degree_gradient", (True, False))
@pytest.mark.parametrize("norm", ("l2", "l1"))
@pytest.mark.parametrize("seed", range(3))
def test_gradient_is_that_of_the_loss(seed: int, norm: Literal["l2", "l1"], degree_gradient: bool) -> None:
    rng = np.random.default_rng(seed)
    how = GraphLearning(mu1=0.7, mu2=0.3, beta=0.4, epsilon=0.05, norm=norm, degree_gradient=degree_gradient)
    weights, gamma = rng.dirichlet(np.ones(6), size=2)
    scores = rng.uniform(-1, 1, size=6)
    own = int(rng.integers(6))
    point = torch.tensor(weights, requires_grad=True)
    eq_7(point, torch.tensor(scores), torch.tensor(gamma), own, how).backward()
    assert point.grad is not None
    np.testing.assert_allclose(
        graph_gradient(weights, scores, gamma, own, how), point.grad.numpy(), rtol=1e-10
    )


@pytest.mark.parametrize("how", (PAPER, AUTHORS_CODE, GraphLearning(norm="l1")))
def test_gradient_at_the_edges_is_finite(how: GraphLearning) -> None:
    for weights in (np.array([1.0, 0.0, 0.0]), np.zeros(3)):
        assert np.isfinite(graph_gradient(weights, -np.ones(3), np.ones(3) / 3, 0, how)).all()


def test_on_the_simplex_the_l1_norm_is_no_norm() -> None:
    """Nor at its edges: among the weights there are zeros at the end."""
    heads = clustered_heads(0.9, noise=0.1)
    with_norm = trajectory(heads, GraphLearning(norm="l1"), 80)[-1]
    without = trajectory(heads, GraphLearning(beta=0.0), 80)[-1]
    assert (without[1:] == 0).any()
    np.testing.assert_allclose(with_norm, without, atol=1e-12)
    assert np.abs(with_norm - trajectory(heads, PAPER, 80)[-1]).max() > 0.01


# --- one update ---------------------------------------------------------------------------------------------


@examples(25)
@given(st.integers(2, 8), st.integers(0, 2**32 - 1), st.sampled_from((PAPER, AUTHORS_CODE, SOFT)))
def test_one_update_is_the_nearest_point_to_the_gradient_step(n: int, seed: int, how: GraphLearning) -> None:
    """Against autograd for the gradient, and a solver of quadratic programs for the projection."""
    rng = np.random.default_rng(seed)
    heads = [head(rng.normal(size=(CLASSES, 3))) for _ in range(n)]
    counts = [int(count) for count in rng.integers(1, 500, size=n)]
    weights = rng.dirichlet(np.ones(n))
    names = [str(j) for j in range(1, n)]
    peers, samples = dict(zip(names, heads[1:], strict=True)), dict(zip(names, counts[1:], strict=True))
    cosines = head_similarity(heads[0], peers, CLASSES, how.similarity)
    scores = torch.tensor([-1.0, *(-cosines[name] for name in names)], dtype=torch.float64)
    point = torch.tensor(weights, requires_grad=True)
    gamma = torch.tensor(counts, dtype=torch.float64) / sum(counts)
    (gradient,) = torch.autograd.grad(eq_7(point, scores, gamma, 0, how), point)
    if how.step == "sign":
        gradient = gradient.sign()
    moved = weights - how.learning_rate * gradient.numpy()
    nearest = minimize(
        lambda w: ((w - moved) ** 2).sum(),
        np.full(n, 1 / n),
        jac=lambda w: 2 * (w - moved),
        bounds=[(0, None)] * n,
        constraints=[LinearConstraint(np.ones((1, n)), 1, 1)],
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(project_on_simplex(moved), nearest.x, atol=1e-6)
    before = CollaborationWeights(float(weights[0]), dict(zip(names, weights[1:].tolist(), strict=True)))
    after = learn_weights(before, heads[0], peers, counts[0], samples, CLASSES, how)
    np.testing.assert_allclose([after.itself, *(after.peers[name] for name in names)], nearest.x, atol=1e-6)


def test_several_steps_are_as_many_updates() -> None:
    heads = clustered_heads(0.6, noise=0.1)
    five = trajectory(heads, replace(PAPER, steps=5), 4)
    np.testing.assert_allclose(five, trajectory(heads, PAPER, 20)[4::5], atol=1e-15)


def update(
    weights: Mapping[str, float], heads: Mapping[str, Floats], how: GraphLearning = PAPER
) -> CollaborationWeights:
    """An update of the client "me", whose head is among `heads`."""
    before = CollaborationWeights(weights["me"], {name: w for name, w in weights.items() if name != "me"})
    peers = {name: it for name, it in heads.items() if name != "me"}
    return learn_weights(before, heads["me"], peers, 10, dict.fromkeys(peers, 10), 1, how)


ALIKE, OPPOSITE = head(np.array([[1.0, 0.0]])), head(np.array([[-1.0, 0.0]]))


def test_a_peer_without_a_head_keeps_its_weight() -> None:
    after = update({"me": 0.3, "a": 0.2, "b": 0.2, "silent": 0.3}, {"me": ALIKE, "a": ALIKE, "b": OPPOSITE})
    assert after.peers["silent"] == 0.3
    assert after.peers["a"] > 0.2 > after.peers["b"]
    assert after.itself + sum(after.peers.values()) == pytest.approx(1)


def test_the_others_share_what_a_peer_without_a_head_leaves() -> None:
    """By hand: steps of .1 mu1/3 = 1/60 up, up and down; the sum, .7 + 1/60, is 1/60 too much for three."""
    heads = {"me": ALIKE, "a": ALIKE, "b": OPPOSITE}
    how = GraphLearning(beta=0.0, degree_gradient=False)
    after = update({"me": 0.3, "a": 0.2, "b": 0.2, "silent": 0.3}, heads, how)
    assert after.itself == pytest.approx(0.3 + 1 / 60 - 1 / 180)
    expected = {"a": 0.2 + 1 / 60 - 1 / 180, "b": 0.2 - 1 / 60 - 1 / 180, "silent": 0.3}
    assert after.peers == pytest.approx(expected)


def test_a_head_that_is_not_finite_is_judged_as_none() -> None:
    """Training that diverged somewhere must not end everybody else's."""
    weights, broken = {"me": 0.3, "a": 0.2, "b": 0.2, "broken": 0.3}, ALIKE * np.nan
    with_broken = update(weights, {"me": ALIKE, "a": ALIKE, "b": OPPOSITE, "broken": broken})
    assert with_broken == update(weights, {"me": ALIKE, "a": ALIKE, "b": OPPOSITE})
    own_broken = update(weights, {"me": broken, "a": ALIKE, "b": OPPOSITE, "broken": ALIKE})
    assert {"me": own_broken.itself, **own_broken.peers} == weights


def test_what_rounding_leaves_is_no_weight() -> None:
    how = GraphLearning(learning_rate=1e-15)
    after = update({"me": 0.5, "a": 0.5, "b": 1e-12}, {"me": ALIKE, "a": ALIKE, "b": ALIKE}, how)
    assert after.peers["b"] == 0 and after.itself + after.peers["a"] == 1


NEWCOMERS = {"me": ALIKE, "a": ALIKE, "new": ALIKE, "stranger": OPPOSITE}


def test_a_newcomer_starts_from_0_and_grows_if_it_is_alike() -> None:
    after = update({"me": 0.5, "a": 0.5}, NEWCOMERS)
    assert after.peers["new"] > 0.005 and after.peers["stranger"] == 0


def test_the_authors_step_lets_in_nobody_from_0_but_keeps_who_was_let_in() -> None:
    """All that are alike move by the same 0.1, which the projection takes back."""
    after = update({"me": 0.5, "a": 0.5}, NEWCOMERS, AUTHORS_CODE)
    assert after.itself == pytest.approx(0.5)
    assert after.peers == {"a": pytest.approx(0.5), "new": 0, "stranger": 0}
    let_in = add_peer_share(
        add_peer_share(CollaborationWeights(0.5, {"a": 0.5, "gone": 0.0}), "new"), "stranger"
    )
    assert let_in.itself == pytest.approx(0.25) and let_in.peers["gone"] == 0
    assert let_in.peers["new"] == pytest.approx(0.25) and let_in.peers["stranger"] == pytest.approx(0.25)
    for _ in range(3):
        let_in = update({"me": let_in.itself, **let_in.peers}, NEWCOMERS, AUTHORS_CODE)
    third = pytest.approx(1 / 3)
    assert let_in.itself == third and let_in.peers["new"] == third and let_in.peers["stranger"] == 0


def test_who_has_a_weight_already_is_let_in_no_second_time() -> None:
    assert add_peer_share(CollaborationWeights(0.9, {"a": 0.1}), "a") == CollaborationWeights(0.9, {"a": 0.1})


def test_without_any_head_nothing_changes() -> None:
    assert update({"me": 0.4, "a": 0.6}, {"me": ALIKE}) == CollaborationWeights(0.4, {"a": 0.6})
    assert update({"me": 0.0, "a": 1.0}, {"me": ALIKE, "b": ALIKE}) == CollaborationWeights(0.0, {"a": 1.0})
    assert update({"me": 1.0}, {"me": ALIKE}) == CollaborationWeights(1.0, {})


def test_heads_and_samples_must_be_of_the_same_peers() -> None:
    with pytest.raises(ValueError, match="one is missing for a, b"):
        learn_weights(CollaborationWeights(1.0, {}), ALIKE, {"a": ALIKE}, 1, {"b": 1}, 1, PAPER)


# --- two clusters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", (0.0, 0.02))
@pytest.mark.parametrize("cosine", (0.92, 0.48, 0.18))
def test_the_authors_step_finds_two_clusters_at_once(cosine: float, noise: float) -> None:
    for client, inside in ((0, slice(0, 10)), (13, slice(10, 20))):
        expected = np.zeros(20)
        expected[inside] = 0.1
        for weights in trajectory(clustered_heads(cosine, noise=noise), AUTHORS_CODE, 30, client):
            np.testing.assert_allclose(weights, expected, atol=1e-12)
            assert (weights[expected == 0] == 0).all()  # exactly: these peers get no more messages


def reduced_steps(cosine: float, how: GraphLearning, rounds: int) -> list[tuple[float, float, float]]:
    """The same by other means: three numbers (own weight, each of 9 inside, each of 10 outside), autograd for
    the gradient, bisection for the projection."""
    many = torch.tensor([1.0, 9.0, 10.0], dtype=torch.float64)
    scores = torch.tensor([-1.0, -cosine, 0.0], dtype=torch.float64)
    w = torch.full((3,), 0.05, dtype=torch.float64)
    found = []
    for _ in range(rounds):
        w.requires_grad_()
        degree = 9 * w[1] + 10 * w[2]
        degree = degree if how.degree_gradient else degree.detach()
        regulariser = how.beta * (many * w**2).sum().sqrt() - (degree + how.epsilon).log()
        loss = how.mu1 * (many * w * scores).sum() / 20 + how.mu2 * regulariser
        (gradient,) = torch.autograd.grad(loss, w)
        moved = w.detach() - how.learning_rate * gradient / many
        low, high = moved.min().item() - 1, moved.max().item()
        for _ in range(100):
            middle = (low + high) / 2
            if (many * (moved - middle).clamp(min=0)).sum() > 1:
                low = middle
            else:
                high = middle
        w = (moved - low).clamp(min=0)
        found.append((w[0].item(), w[1].item(), w[2].item()))
    return found


def rounds_until_outside_is_gone(weights: list[Floats]) -> int:
    return next(number for number, w in enumerate(weights, start=1) if (w[10:] == 0).all())


@pytest.mark.parametrize("how", (PAPER, replace(PAPER, degree_gradient=False)))
def test_the_papers_steps_on_two_clusters(how: GraphLearning) -> None:
    found = trajectory(clustered_heads(0.9), how, 150)
    expected = reduced_steps(0.9, how, 150)
    np.testing.assert_allclose([w[[0, 5, 15]] for w in found], expected, atol=1e-9)
    gone = next(number for number, w in enumerate(expected, start=1) if w[2] < NEGLIGIBLE)
    assert rounds_until_outside_is_gone(found) == gone
    assert 50 < gone < 150
    assert (found[-1][10:] == 0).all()
    # With its gradient, the logarithm of the degree leaves a client nothing for itself.
    assert found[-1][0] == 0 if how.degree_gradient else found[-1][0] > 0.1


def test_rounds_in_closed_form_without_regulariser() -> None:
    """All w_j grow by eta mu1 gamma_j cos_j, less the mean of that:
    w_out = 1/M - t eta mu1 (1 + 9 cos)/M^2."""
    how = GraphLearning(norm="l1", degree_gradient=False)
    expected = math.ceil(20 / (0.1 * 0.5 * (1 + 9 * 0.9)))
    assert expected == 44
    found = trajectory(clustered_heads(0.9), how, 50)
    assert rounds_until_outside_is_gone(found) == expected
    assert found[9][15] == pytest.approx(1 / 20 - 10 * 0.1 * 0.5 * 9.1 / 400)


@pytest.mark.long
@pytest.mark.parametrize("similarity", ("whole", "per-class"))
@pytest.mark.parametrize("cosine", (0.62, 0.71))
def test_the_papers_steps_drop_others_only_above_a_cosine(
    cosine: float, similarity: Literal["whole", "per-class"]
) -> None:
    """With all weight on 9 peers, each 1/9, one outside stays at 0 as long as its gradient is the larger:
    mu1 cos/M > mu2 beta (1/9)/(1/3), that is cos > 2/3. Over the largest, the cosine is 1."""
    last = trajectory(clustered_heads(cosine), GraphLearning(similarity=similarity), 1500)[-1]
    assert (last[10:] == 0).all() == (similarity == "per-class" or cosine > 2 / 3)


def test_ablations() -> None:
    heads = clustered_heads(0.9)
    blind = trajectory(heads, replace(PAPER, similarity="none", degree_gradient=False), 30)[-1]
    np.testing.assert_allclose(blind, 1 / 20, atol=1e-12)  # all alike, of equal size
    unsure = trajectory(heads, replace(PAPER, confidence="none"), 10)
    sure = trajectory(heads, PAPER, 100)
    assert rounds_until_outside_is_gone(unsure) < 10 and (sure[9] > 0).sum() > 10
