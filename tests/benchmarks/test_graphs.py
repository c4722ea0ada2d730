"""What is said of the graphs of a sweep's runs is right."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from sim.results.population import ClientPanelData


def test_rows_that_are_shared_out_as_the_true_ones_have_no_distance() -> None:
    clusters = [0, 0, 0, 1, 1]
    inside = {(i, j): 0.25 for i in range(5) for j in range(5) if i != j and clusters[i] == clusters[j]}
    assert graphs.row_distance(inside, clusters, range(5)) == pytest.approx(0.0)
    # All of client 0's weight is on the other cluster, 2 off; all other rows are right.
    wrong = {pair: weight for pair, weight in inside.items() if pair[0] != 0} | {(0, 3): 1.0}
    assert graphs.row_distance(wrong, clusters, range(5)) == pytest.approx(2 / 5)
    # Client 0 is gone; half of client 1's weight is on client 3.
    half = inside | {(1, 3): 0.25}
    assert graphs.row_distance(half, clusters, [1, 2, 3, 4]) == pytest.approx(1.0 / 4)


def test_those_in_the_same_assigned_cluster_are_joined() -> None:
    panel = ClientPanelData(np.array([1.0, 2.0, 3.0]), np.array([[0.0, 0, 0, 0], [1, 1, 0, 0], [1, 0, 0, 1]]))
    view: Any = SimpleNamespace(
        snapshot_times=lambda count: np.array([]),
        panel={"cluster": panel}.get,
        clusters=np.array([0, 0, 1, 1]),
        edge_threshold=0.5,
        get=lambda *keys: None,
    )
    assert graphs.graph_at(view, 2.5, range(4)) == graphs.Graph(1.0, 1.0, 0.0)
    assert graphs.graph_at(view, 3.0, range(4)) == graphs.Graph(0.0, 0.0, 2.0)
    assert graphs.graph_at(view, 0.5, range(4)) == graphs.Graph(None, None, None)


def test_without_clusters_those_with_the_same_classes_belong_together() -> None:
    counts = [[5, 0, 3], [0, 2, 2], [1, 0, 9], [4, 4, 0]]
    view: Any = SimpleNamespace(clusters=None, get={"class_counts": counts}.get)
    assert graphs.true_clusters(view) == [0, 1, 0, 2]
    # Clients 1 and 3 have no peer with their classes, so their rows do not count.
    weights = {(0, 2): 1.0, (2, 0): 0.5, (2, 1): 0.5, (1, 0): 1.0}
    assert graphs.row_distance(weights, [0, 1, 0, 2], range(4)) == pytest.approx((0.0 + 1.0) / 2)
    assert np.isnan(graphs.row_distance(weights, [0, 1, 2, 3], range(4)))
    for known, clusters in (
        ({}, None),
        ({"class_counts": [[1, 2], [5, 5]]}, None),  # the true graph would have all edges
        ({"class_counts": [[1, 0], [0, 0], [0, 0], [4, 0]]}, [0, 1, 2, 0]),
    ):
        view = SimpleNamespace(clusters=None, get=known.get)
        assert graphs.true_clusters(view) == clusters
