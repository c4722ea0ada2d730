"""The pure functions that protocols share."""

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import kstest

from protocols.framework.mathematics import metropolis_weights, project_on_simplex, shared_uniform
from protocols.framework.vectors import mix
from tests.learning.engines import new_engine

vectors = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)
totals = st.floats(0.1, 10.0)


# --- the simplex --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_projection_is_the_nearest_point_that_a_solver_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, total = int(rng.integers(2, 7)), float(rng.uniform(0.5, 2.0))
    point = rng.normal(size=n)
    found = minimize(
        lambda w: ((w - point) ** 2).sum(),
        np.full(n, total / n),
        jac=lambda w: 2 * (w - point),
        bounds=[(0, None)] * n,
        constraints={"type": "eq", "fun": lambda w: w.sum() - total},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    assert found.success
    np.testing.assert_allclose(project_on_simplex(point, total), found.x, atol=1e-6)


@given(vectors, totals)
def test_projection_meets_the_conditions_of_optimality(values: list[float], total: float) -> None:
    point = np.array(values)
    projected = project_on_simplex(point, total)
    tolerance = 1e-9 * (1 + np.ptp(point))
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(total, rel=1e-9, abs=tolerance)
    # Karush, Kuhn, Tucker: all positive parts have lost the same amount, and the others had no more than it.
    shift = (point - projected)[projected > 0]
    assert np.ptp(shift) <= tolerance
    assert (point[projected == 0] <= shift.max() + tolerance).all()


@given(vectors, totals)
def test_projection_keeps_the_order_and_what_is_projected_already(values: list[float], total: float) -> None:
    projected = project_on_simplex(values, total)
    order = np.argsort(values, kind="stable")
    assert (np.diff(projected[order]) >= 0).all()
    np.testing.assert_allclose(project_on_simplex(projected, total), projected, atol=1e-9)


@given(vectors, st.floats(-1e6, 1e6))
def test_projection_ignores_what_is_added_everywhere(values: list[float], shift: float) -> None:
    point = np.array(values)
    np.testing.assert_allclose(project_on_simplex(point + shift), project_on_simplex(point), atol=1e-8)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
        ([1.0, 1.0], [0.5, 0.5]),
        ([3.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
        ([0.5, 0.1, -2.0], [0.7, 0.3, 0.0]),
        ([-7.0], [1.0]),
        ([1e17, 1e17, 0.0], [0.5, 0.5, 0.0]),  # 1 is lost beside 1e17
        ([-1e30, 0.0], [0.0, 1.0]),
    ],
)
def test_projections_by_hand(values: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(project_on_simplex(values), expected, atol=1e-15)


@pytest.mark.parametrize(
    ("values", "total", "problem"),
    [
        ([], 1.0, "at least one entry"),
        ([[1.0]], 1.0, "at least one entry"),
        ([1.0], 0.0, "more than 0"),
        ([1.0, float("nan")], 1.0, "finite"),
        ([1.0, float("inf")], 1.0, "finite"),
    ],
)
def test_projection_refuses(values: list[float], total: float, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        project_on_simplex(values, total)


# --- weights of a topology ----------------------------------------------------------------------------------


@given(st.integers(1, 12), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_metropolis_weights_are_symmetric_and_doubly_stochastic(n: int, p: float, seed: int) -> None:
    graph = nx.gnp_random_graph(n, p, seed=seed)
    matrix = np.zeros((n, n))
    for i in range(n):
        weights = metropolis_weights(graph.degree[i], {str(j): graph.degree[j] for j in graph[i]})
        for j, weight in weights.items():
            matrix[i, int(j)] = weight
        matrix[i, i] = 1 - sum(weights.values())
    assert (matrix == matrix.T).all()
    assert (matrix >= 0).all() and (np.diag(matrix) > 0).all()
    np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-12)


def test_metropolis_weights_by_hand() -> None:
    assert metropolis_weights(2, {"a": 1, "b": 2, "c": 3}) == {"a": 1 / 3, "b": 1 / 3, "c": 1 / 4}
    assert metropolis_weights(0, {}) == {}


# --- common random numbers ----------------------------------------------------------------------------------


def test_shared_uniform_is_uniform() -> None:
    draws = [shared_uniform(1, "pair", "client-0", "client-1", number) for number in range(4000)]
    assert all(0 <= draw < 1 for draw in draws)
    assert kstest(draws, "uniform").pvalue > 0.01


def test_shared_uniform_of_neighbouring_names_are_unrelated() -> None:
    first = [shared_uniform(1, "pair", "a", number) for number in range(2000)]
    for other in ([shared_uniform(2, "pair", "a", number) for number in range(2000)],
                  [shared_uniform(1, "pair", "b", number) for number in range(2000)],
                  [shared_uniform(1, "pair", "a", number + 1) for number in range(2000)]):  # fmt: skip
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.07  # three standard deviations


def test_shared_uniform_depends_on_order_and_type() -> None:
    draws = {
        shared_uniform(1, "a", "b"),
        shared_uniform(1, "b", "a"),
        shared_uniform(1, "ab"),
        shared_uniform(1, "a", 1),
        shared_uniform(1, "a", "1"),
        shared_uniform(1),
        shared_uniform(2, "a", "b"),
    }
    assert len(draws) == 7


def test_shared_uniform_is_the_same_on_every_machine() -> None:
    assert shared_uniform(0) == 0.38832767685653113
    assert shared_uniform(1, "pair", "client-0", "client-1", 7) == 0.6836873746162695


# --- mixing -------------------------------------------------------------------------------------------------


def test_mix_is_the_weighted_sum() -> None:
    engine = new_engine()
    first, second = engine.vector(torch.tensor([1.0, 2.0])), engine.vector(torch.tensor([10.0, 20.0]))
    assert mix([(0.25, first), (0.75, second)]).tensor().tolist() == [7.75, 15.5]
    assert mix((2.0, vector) for vector in (first,)).tensor().tolist() == [2.0, 4.0]


def test_mix_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one vector"):
        mix([])
