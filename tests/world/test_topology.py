"""Topologies: the promised graph, in order, the same for the same arguments, or a clear refusal."""

from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sim.errors import UserError
from sim.kernel.random import key
from sim.world.topology.kinds import Numbers, Topology

kinds: TypeAdapter[Any] = TypeAdapter(Topology)


def neighbours(n: int, seed: int = 0, **table: Any) -> Numbers:
    """Whom each of n clients may talk to, in a topology as a scenario would state it."""
    topology = kinds.validate_python(table)
    assert not list(topology.misfits(n))
    adjacency = topology.adjacency(n, seed)
    assert not adjacency.directed
    return adjacency.receivers


def graph(n: int, seed: int = 0, **table: Any) -> nx.Graph:
    found = neighbours(n, seed, **table)
    made = nx.Graph([(i, j) for i, others in enumerate(found) for j in others])
    made.add_nodes_from(range(n))
    assert [sorted(made[i]) for i in range(n)] == found
    return made


def test_fixed_graphs() -> None:
    assert neighbours(4, kind="complete") == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert [neighbours(n, kind="complete") for n in (1, 2)] == [[[]], [[1], [0]]]
    assert neighbours(5, kind="ring") == [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]]
    in_clusters = [[1], [0], [], [4, 5], [3, 5], [3, 4]]
    assert neighbours(6, kind="clusters", sizes=(2, 1, 3)) == in_clusters
    assert neighbours(5, kind="clusters", count=2) == [[1, 2], [0, 2], [0, 1], [4], [3]]
    assert neighbours(2, kind="k-regular", degree=1) == [[1], [0]]
    assert neighbours(1, kind="erdos-renyi", probability=0.5) == [[]]


@given(st.integers(3, 40), st.integers(2, 6), st.integers(0, 2**32))
def test_k_regular_graphs_are_regular_and_connected(n: int, k: int, seed: int) -> None:
    if k >= n or n * k % 2:
        assert list(kinds.validate_python({"kind": "k-regular", "degree": k}).misfits(n))
        return
    drawn = graph(n, seed, kind="k-regular", degree=k)
    assert all(degree == k for _, degree in drawn.degree)
    assert nx.is_connected(drawn)
    assert nx.number_of_selfloops(drawn) == 0


@pytest.mark.parametrize(
    "table",
    [
        {"kind": "k-regular", "degree": 4},
        {"kind": "erdos-renyi", "probability": 0.2},
        {"kind": "small-world", "degree": 4, "rewire": 0.2},
    ],
)
def test_random_graphs_are_connected_functions_of_the_seed(table: dict[str, Any]) -> None:
    assert neighbours(30, 1, **table) == neighbours(30, 1, **table) != neighbours(30, 2, **table)
    assert all(nx.is_connected(graph(30, seed, **table)) for seed in range(10))


def test_a_k_regular_graph_is_that_of_networkx() -> None:
    """It is drawn without being made there, as its dictionaries would take most of the memory."""
    drawn = nx.random_regular_graph(4, 30, seed=key(key(1, "k-regular"), 0))
    assert nx.is_connected(drawn)
    assert nx.utils.graphs_equal(graph(30, 1, kind="k-regular", degree=4), nx.Graph(sorted(drawn.edges)))


def test_the_density_of_an_erdos_renyi_graph() -> None:
    assert neighbours(5, kind="erdos-renyi", probability=1.0) == neighbours(5, kind="complete")
    counts = [graph(40, seed, kind="erdos-renyi", probability=0.3).number_of_edges() for seed in range(30)]
    assert sum(counts) / 30 == pytest.approx(0.3 * 780, rel=0.05)


def test_a_graph_is_drawn_again_until_it_is_connected() -> None:
    # With 12 clients and p = 0.2 about half of all draws have a client without neighbors.
    assert all(nx.is_connected(graph(12, seed, kind="erdos-renyi", probability=0.2)) for seed in range(50))
    with pytest.raises(UserError, match=r'kind = "erdos-renyi": none of 100 drawn graphs of 100 clients is'):
        neighbours(100, kind="erdos-renyi", probability=0.001)


def test_rewiring_in_a_small_world() -> None:
    lattice = graph(20, kind="small-world", degree=4, rewire=0.0)
    assert sorted(lattice[0]) == [1, 2, 18, 19]
    rewired = graph(20, kind="small-world", degree=4, rewire=0.5)
    assert rewired.number_of_edges() == 40
    assert not nx.utils.graphs_equal(rewired, lattice)


def edge_list(folder: Path, text: str) -> Numbers:
    (folder / "edges.txt").write_text(text)
    return neighbours(4, kind="edge-list", file=str(folder / "edges.txt"))


def test_an_edge_list(tmp_path: Path) -> None:
    text = "# who sits beside whom\n0 1\n\n 2\t1  # a comment\n1 0\n"
    assert edge_list(tmp_path, text) == [[1], [0, 2], [1], []]


@pytest.mark.parametrize("line", ["0 4", "0 -1", "0 1 2", "0", "0,1", "2 2", f"0 {'1' * 5000}"])
def test_a_bad_edge_list_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    must = "must be two different client numbers from 0 to 3"
    with pytest.raises(UserError, match=f"edges.txt, line 2: '{line[:60]}': {must}"):
        edge_list(tmp_path, f"0 1\n{line}\n")
