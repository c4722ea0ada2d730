"""Topologies: the promised graph, in order, the same for the same arguments, or a clear refusal."""

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.world.topology.graphs import (
    clusters,
    complete,
    erdos_renyi,
    from_edge_list,
    k_regular,
    neighbours,
    ring,
    small_world,
)


def edges(graph):
    return sorted(tuple(sorted(edge)) for edge in graph.edges)


def test_fixed_graphs():
    assert neighbours(complete(4)) == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert neighbours(ring(5)) == [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]]
    assert neighbours(clusters([2, 1, 3])) == [[1], [0], [], [4, 5], [3, 5], [3, 4]]


def test_small_graphs():
    for make in (complete, ring):
        assert [neighbours(make(n)) for n in (1, 2, 3)] == [[[]], [[1], [0]], [[1, 2], [0, 2], [0, 1]]]
    assert neighbours(k_regular(1, 0, seed=0)) == [[]]
    assert neighbours(k_regular(2, 1, seed=0)) == [[1], [0]]
    assert neighbours(erdos_renyi(1, 0.5, seed=0)) == [[]]


@given(st.integers(3, 40), st.integers(2, 6), st.integers(0, 2**32))
def test_k_regular_graphs_are_regular_and_connected(n, k, seed):
    if k >= n or n * k % 2:
        with pytest.raises(ValueError, match="k-regular"):
            k_regular(n, k, seed)
        return
    graph = k_regular(n, k, seed)
    assert list(graph) == list(range(n))
    assert all(degree == k for _, degree in graph.degree)
    assert nx.is_connected(graph)
    assert nx.number_of_selfloops(graph) == 0


RANDOM = [
    lambda seed: k_regular(30, 4, seed),
    lambda seed: erdos_renyi(30, 0.2, seed),
    lambda seed: small_world(30, 4, 0.2, seed),
]


@pytest.mark.parametrize("make", RANDOM)
def test_random_graphs_are_functions_of_the_seed(make):
    assert edges(make(1)) == edges(make(1))
    assert edges(make(1)) != edges(make(2))
    assert all(nx.is_connected(make(seed)) and list(make(seed)) == list(range(30)) for seed in range(10))


def test_the_density_of_an_erdos_renyi_graph():
    assert edges(erdos_renyi(5, 1.0, seed=0)) == edges(complete(5))
    counts = [erdos_renyi(40, 0.3, seed).number_of_edges() for seed in range(30)]
    assert sum(counts) / 30 == pytest.approx(0.3 * 780, rel=0.05)


def test_a_graph_is_drawn_again_until_it_is_connected():
    # With 12 clients and p = 0.2 about half of all draws have a client without neighbours.
    assert all(nx.is_connected(erdos_renyi(12, 0.2, seed)) for seed in range(50))


def test_rewiring_in_a_small_world():
    lattice = small_world(20, 4, 0.0, seed=0)
    assert neighbours(lattice)[0] == [1, 2, 18, 19]
    rewired = small_world(20, 4, 0.5, seed=0)
    assert rewired.number_of_edges() == 40
    assert edges(rewired) != edges(lattice)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: complete(0), "at least one client, not 0"),
        (lambda: ring(0), "at least one client"),
        (lambda: clusters([]), "at least one client"),
        (lambda: clusters([2, 0]), r"every size must be at least 1, not \[2, 0\]"),
        (lambda: k_regular(5, 5, 0), "k must be between 0 and 4, not 5"),
        (lambda: k_regular(5, 3, 0), "must be even, and n = 5, k = 3"),
        (lambda: k_regular(6, 1, 0), "connected only for k >= 2, not 1"),
        (lambda: erdos_renyi(5, 1.5, 0), "p must be between 0 and 1, not 1.5"),
        (
            lambda: erdos_renyi(100, 0.001, 0),
            r"no connected .*\(p = 0.001\) graph of 100 clients in 100 draws",
        ),
        (lambda: erdos_renyi(0, 0.5, 0), "at least one client"),
        (lambda: small_world(10, 3, 0.1, 0), "k must be even, at least 2 and below 10, not 3"),
        (lambda: small_world(4, 4, 0.1, 0), "below 4, not 4"),
        (lambda: small_world(10, 4, -0.1, 0), "p must be between 0 and 1, not -0.1"),
    ],
)
def test_impossible_graphs_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_edge_list():
    graph = from_edge_list("# who sits beside whom\n0 1\n\n 2\t1  # a comment\n1 0\n", 4)
    assert list(graph) == [0, 1, 2, 3]
    assert neighbours(graph) == [[1], [0, 2], [1], []]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 4", "clients are numbered 0 to 3"),
        ("0 -1", "not two client numbers"),
        ("0 1 2", "not two client numbers"),
        ("0", "not two client numbers"),
        ("0,1", "not two client numbers"),
        ("2 2", "a client is not its own neighbour"),
        (f"0 {'1' * 5000}", "not two client numbers"),
    ],
)
def test_a_bad_edge_list_is_refused_with_its_line(line, message):
    with pytest.raises(ValueError, match=f"line 2: '{line[:60]}'.* {message}"):
        from_edge_list(f"0 1\n{line}\n", 4)
