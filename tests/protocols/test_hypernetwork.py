"""The hypernetwork's mathematics against autograd, brute force and closed forms."""

import itertools
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional

from protocols.learn_to_collaborate.benefit_weights import optimal_collaborators, projected_step
from protocols.learn_to_collaborate.pareto_front import LEAKS
from protocols.learn_to_collaborate.settings import LearnToCollaborateSettings as Settings
from protocols.shared.hypernetwork import (
    add_input,
    append_start_model,
    backpropagate,
    generated,
    initial,
    input_gradient,
    size,
)

FORMS = [((4, 5, 14), None), ((4, 5, 14), 0.01), ((3, 6, 5, 14), 0.01), ((3, 6, 5, 14), 0.0), ((4, 14), None)]


def numbers(widths: tuple[int, ...], seed: int = 0) -> tuple[Tensor, Tensor, np.random.Generator]:
    rng = np.random.default_rng(seed)
    start = torch.from_numpy(rng.standard_normal(widths[-1]))
    weights = append_start_model(torch.from_numpy(initial(widths, rng)), start)
    return weights, torch.from_numpy(rng.dirichlet(np.ones(widths[0]))), rng


def by_torch(weights: Tensor, d: Tensor, widths: tuple[int, ...], leak: float | None) -> Tensor:
    """With torch's own layers."""
    x, at = d, 0
    for number, (into, out) in enumerate(itertools.pairwise(widths)):
        matrix = weights[at : at + into * out].reshape(out, into)
        x = functional.linear(x, matrix, weights[at + into * out : at + into * out + out])
        at += into * out + out
        if leak is not None and number < len(widths) - 2:
            x = functional.leaky_relu(x, leak)
    return x


@pytest.mark.parametrize(("widths", "leak"), FORMS)
def test_forward(widths: tuple[int, ...], leak: float | None) -> None:
    weights, d, _ = numbers(widths)
    assert weights.shape == (size(widths),)
    torch.testing.assert_close(generated(weights, d, widths, leak), by_torch(weights, d, widths, leak))


def test_the_activations_are_those_of_their_names() -> None:
    """One hidden layer, whose outputs are the model: identity beside torch's."""
    functions = {"none": lambda x: x, "relu": functional.relu, "leaky-relu": functional.leaky_relu}
    assert set(LEAKS) == set(functions) == set(get_args(Settings.model_fields["activation"].annotation))
    for name, function in functions.items():
        weights, d, _ = numbers((4, 3, 3))
        first, last = (
            weights[:15].clone(),
            torch.cat([torch.eye(3).double().flatten(), torch.zeros(3).double()]),
        )
        hidden = functional.linear(d, first[:12].reshape(3, 4), first[12:])
        assert (hidden < 0).any()
        found = generated(torch.cat([first, last]), d, (4, 3, 3), LEAKS[name])
        torch.testing.assert_close(found, function(hidden))


@pytest.mark.parametrize(("widths", "leak"), FORMS)
def test_gradients_from_the_clients_gradients_alone_are_those_of_autograd_end_to_end(
    widths: tuple[int, ...], leak: float | None
) -> None:
    """sum_i d_i l_i(HN(d)), with l_i the cross-entropy of a linear model on data of client i."""
    weights, d, rng = numbers(widths)
    clients, features, classes = widths[0], 6, 2  # 14 = 2 * (6 + 1)
    data = [torch.from_numpy(rng.standard_normal((8, features))) for _ in range(clients)]
    labels = [torch.from_numpy(rng.integers(0, classes, 8)) for _ in range(clients)]

    def loss(model: Tensor, client: int) -> Tensor:
        scores = data[client] @ model[:12].reshape(classes, features).T + model[12:]
        return functional.cross_entropy(scores, labels[client])

    weights.requires_grad_(), d.requires_grad_()
    shares = d.detach()
    model = by_torch(weights, d, widths, leak)
    whole = sum([shares[i] * loss(model, i) for i in range(clients)], torch.tensor(0.0))
    of_weights, of_d = torch.autograd.grad(whole, (weights, d))

    sent = generated(weights, d, widths, leak).detach().requires_grad_()  # all that a client sees
    answers = [torch.autograd.grad(loss(sent, i), sent)[0] for i in range(clients)]
    combined = sum([shares[i] * answers[i] for i in range(clients)], torch.zeros(widths[-1]))
    fixed = weights.detach()
    found = backpropagate(fixed, shares, combined, widths, leak)
    torch.testing.assert_close(found[0], of_weights)
    torch.testing.assert_close(found[1], of_d)
    torch.testing.assert_close(input_gradient(fixed, shares, combined, widths, leak), of_d)


def test_without_activation_the_model_is_affine_in_d() -> None:
    widths = (4, 5, 14)
    weights, d, _ = numbers(widths)
    corners = [generated(weights, corner, widths, None) for corner in torch.eye(4).double()]
    mixture = sum([d[i] * corners[i] for i in range(4)], torch.zeros(14))
    torch.testing.assert_close(generated(weights, d, widths, None), mixture)


def test_it_begins_at_the_model_that_all_begin_with() -> None:
    widths, rng = (3, 4, 7), np.random.default_rng(1)
    weights = append_start_model(torch.from_numpy(initial(widths, rng, 0.0)), torch.arange(7.0).double())
    for d in torch.eye(3).double():
        assert generated(weights, d, widths, 0.01).tolist() == list(range(7))


@pytest.mark.parametrize("leak", [None, 0.01])
def test_a_newcomer_is_at_first_as_all_others_together(leak: float | None) -> None:
    widths, wider = (3, 4, 7), (4, 4, 7)
    weights, d, _ = numbers(widths)
    grown = add_input(weights, widths)
    assert grown.shape == (size(wider),)
    absent = torch.cat([d, torch.zeros(1)])
    torch.testing.assert_close(generated(grown, absent, wider, leak), generated(weights, d, widths, leak))
    newcomer, even = torch.eye(4).double()[3], torch.full((3,), 1 / 3).double()
    torch.testing.assert_close(
        generated(grown, newcomer, wider, leak), generated(weights, even, widths, leak)
    )


vectors = st.lists(st.floats(-3, 3), min_size=1, max_size=6)


@given(vectors, st.floats(0, 0.99))
def test_the_projection_is_the_nearest_point_with_such_entries(point: list[float], part: float) -> None:
    floor, count = part / len(point), len(point)
    found = projected_step(point, np.zeros(count), 1.0, floor, "simplex")
    assert found.sum() == pytest.approx(1) and found.min() >= floor - 1e-12
    # Nearest, exactly: no shift of weight from one entry to another comes closer (the problem is convex).
    residual = np.array(point) - found
    for giving in np.flatnonzero(found > floor + 1e-9):
        assert residual.max() <= residual[giving] + 1e-9


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=4), st.floats(0, 0.9))
def test_the_projection_is_what_scipy_finds(point: list[float], part: float) -> None:
    floor, target = part / len(point), np.array(point)
    reference = minimize(
        lambda d: ((d - target) ** 2).sum(),
        np.full(len(point), 1 / len(point)),
        jac=lambda d: 2 * (d - target),
        bounds=[(floor, 1.0)] * len(point),
        constraints={"type": "eq", "fun": lambda d: d.sum() - 1, "jac": lambda d: np.ones(len(d))},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 200},
    )
    found = projected_step(point, np.zeros(len(point)), 1.0, floor, "simplex")
    np.testing.assert_allclose(found, reference.x, atol=1e-5)


def test_the_papers_step() -> None:
    """Eqs. 27 and 28: a step, clipped to [0.1, 1], divided by the sum."""
    found = projected_step([0.5, 0.3, 0.2], [-1.0, 0.0, 1.0], 0.5, 0.1, "clip")
    np.testing.assert_allclose(found, np.array([1.0, 0.3, 0.1]) / 1.4)
    assert projected_step([0.5, 0.5], [1.0, 1.0], 1.0, 0.0, "clip").tolist() == [0.5, 0.5], (
        "nothing is left: equal"
    )


@given(vectors, vectors, st.sampled_from(["clip", "simplex"]))
def test_steps_stay_on_the_simplex(point: list[float], gradient: list[float], how: str) -> None:
    count = min(len(point), len(gradient))
    d = projected_step(np.full(count, 1 / count), gradient[:count], 0.7, 0.5 / count, how)
    assert d.sum() == pytest.approx(1) and (d > 0).all()


@pytest.mark.parametrize("how", ["clip", "simplex"])
def test_after_a_gradient_that_is_not_a_number_all_weights_are_equal(how: str) -> None:
    assert projected_step([0.7, 0.2, 0.1], [0.1, np.nan, 0.2], 0.5, 0.1, how).tolist() == [1 / 3] * 3
    infinite = projected_step([0.5, 0.5], [-np.inf, 0.0], 0.5, 0.0, how).tolist()
    assert infinite == ([0.5, 0.5] if how == "simplex" else [1.0 / 1.5, 0.5 / 1.5])


@pytest.mark.parametrize("how", ["clip", "simplex"])
def test_descent_finds_the_best_mixture(how: str) -> None:
    """On a quadratic ||A d - b||^2 whose minimum lies on an edge of the simplex."""
    corners = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
    target = np.array([1.0, -0.5])
    d = np.full(3, 1 / 3)
    for _ in range(4000):
        d = projected_step(d, corners.T @ (corners @ d - target), 0.02, 0.0, how)
    np.testing.assert_allclose(d, [0.5, 0.5, 0.0], atol=0.02 if how == "clip" else 1e-6)


def test_optimal_collaborators_by_both_rules() -> None:
    d = [0.4, 0.3, 0.25, 0.05]
    assert optimal_collaborators(d, 0, "relative", 0.7) == [0, 1]
    assert optimal_collaborators(d, 2, "relative", 0.7) == [0, 1, 2]
    assert optimal_collaborators(d, 0, "threshold", 0.5) == [0, 1, 2], "more than half of 1/4"
    assert optimal_collaborators(d, 3, "threshold", 0.5) == [0, 1, 2, 3], (
        "the target itself belongs to it always"
    )
    assert optimal_collaborators([1.0], 0, "relative", 0.7) == [0]


def test_impossible_orders_are_refused() -> None:
    with pytest.raises(ValueError, match="must be 0 or more, and less than 1 / "):
        projected_step([0.5, 0.5], [0.0, 0.0], 0.1, 0.5, "clip")
    with pytest.raises(ValueError, match="unknown projection"):
        projected_step([0.5, 0.5], [0.0, 0.0], 0.1, 0.1, "sphere")
    with pytest.raises(ValueError, match="unknown rule"):
        optimal_collaborators([1.0], 0, "best", 0.1)
