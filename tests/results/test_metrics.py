import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.results.metrics import (
    GRAPH_SCHEMA,
    METRICS_SCHEMA,
    Metrics,
    Series,
    accuracy_summary,
    bytes_to_target,
    gain_summary,
    graph_summary,
    share_better,
    time_to_target,
    worst_decile,
)


def series(*points: tuple[float, float]) -> Series:
    times, values = zip(*points, strict=True)
    return Series(np.array(times, dtype=float), np.array(values, dtype=float))


def recorded() -> Metrics:
    metrics = Metrics()
    for time_s, first, second in [(0.0, 0.25, 0.75), (10.0, 0.5, 1.0)]:
        metrics.add(time_s, "client-0", "accuracy", first)
        metrics.add(time_s, "client-1", "accuracy", second)
        metrics.add(time_s, "all", "bytes_sent", 100 * time_s)
    return metrics


def test_table_is_long_and_in_order():
    table = recorded().to_table()
    assert table.schema == METRICS_SCHEMA
    assert [tuple(row.values()) for row in table.to_pylist()][:3] == [
        (0.0, "client-0", "accuracy", 0.25),
        (0.0, "client-1", "accuracy", 0.75),
        (0.0, "all", "bytes_sent", 0.0),
    ]
    assert len(table) == 6


def test_accessors():
    metrics = recorded()
    assert [a.tolist() for a in metrics.series("client-1", "accuracy")] == [[0.0, 10.0], [0.75, 1.0]]
    assert [a.tolist() for a in metrics.mean("accuracy")] == [[0.0, 10.0], [0.5, 0.75]]
    assert metrics.latest("accuracy") == {"client-0": 0.5, "client-1": 1.0}
    assert metrics.mean("bytes_sent").times.size == 0, "totals are no client's"
    assert metrics.series("client-9", "accuracy").times.size == 0
    assert metrics.mean("loss").values.size == 0
    assert metrics.latest("loss") == {}
    metrics.add(20.0, "client-0", "accuracy", 0.6)  # reading must not lock the columns
    assert metrics.latest("accuracy")["client-0"] == 0.6


def test_empty_tables_have_their_schemas():
    assert Metrics().to_table().schema == METRICS_SCHEMA
    assert Metrics().graph_table().schema == GRAPH_SCHEMA


def rows(metrics: Metrics) -> list[tuple]:
    return [tuple(row.values()) for row in metrics.graph_table().to_pylist()]


def test_graph_stores_nonzero_weights_and_the_fall_to_zero_once():
    metrics = Metrics()
    for time_s, weight in [(0.0, 0.5), (1.0, 0.0), (2.0, 0.0)]:
        metrics.graph(time_s, 0, 1, weight)
        metrics.graph(time_s, 1, 0, 1.0)
        metrics.graph(time_s, 0, 2, 0.0)
    assert rows(metrics) == [
        (0.0, 0, 1, 0.5),
        (0.0, 1, 0, 1.0),
        (1.0, 0, 1, 0.0),
        (1.0, 1, 0, 1.0),
        (2.0, 1, 0, 1.0),
    ]
    assert metrics.weights() == {(0, 1): 0.0, (1, 0): 1.0, (0, 2): 0.0}


def test_a_pair_that_is_no_longer_named_falls_to_zero():
    metrics = Metrics()
    metrics.graph(0.0, 0, 1, 0.5)
    metrics.graph(1.0, 1, 0, 0.5)
    assert rows(metrics) == [(0.0, 0, 1, 0.5), (1.0, 1, 0, 0.5), (1.0, 0, 1, 0.0)]


pairs = st.tuples(st.integers(0, 2), st.integers(0, 2))
snapshots = st.lists(st.dictionaries(pairs, st.sampled_from([0.0, 0.5, 1.0]), min_size=1), max_size=5)


@given(snapshots, st.booleans())
def test_graph_reads_the_same_by_snapshot_and_by_last_value(graphs, look):
    metrics = Metrics()
    for time_s, graph in enumerate(graphs):
        for (source, target), weight in graph.items():
            metrics.graph(float(time_s), source, target, weight)
            if look:
                metrics.graph_table()
    last: dict[tuple[int, int], float] = {}
    for time_s, graph in enumerate(graphs):
        now = {(s, t): w for time, s, t, w in rows(metrics) if time == time_s}
        last |= now
        truth = {pair: weight for pair, weight in graph.items() if weight}
        assert {pair: weight for pair, weight in now.items() if weight} == truth
        assert {pair: weight for pair, weight in last.items() if weight} == truth


def test_worst_decile_rounds_the_number_of_clients_up():
    assert worst_decile([0.5]) == 0.5
    assert worst_decile([1.0] * 9 + [0.0]) == 0.0
    assert worst_decile([1.0] * 9 + [0.5, 0.0]) == 0.25  # ceil(1.1) = 2 clients
    assert worst_decile([3.0, 1.0, 2.0], higher_is_better=False) == 3.0


def test_accuracy_summary():
    assert accuracy_summary([0.25, 0.75]) == {"clients": 2, "mean": 0.5, "std": 0.25, "worst_decile": 0.25}
    assert accuracy_summary([]) == {"clients": 0, "mean": None, "std": None, "worst_decile": None}
    assert accuracy_summary({"a": 1.0}.values())["mean"] == 1.0


CLUSTERS = [0, 0, 1, 1]


def test_graph_summary_by_hand() -> None:
    # Twelve ordered pairs, four of them true: (0,1), (1,0), (2,3), (3,2).
    weights = {(0, 0): 1.0, (0, 1): 1.0, (1, 0): 0.75, (2, 3): 0.5, (0, 2): 0.625, (3, 1): 0.25}
    summary = graph_summary(weights, CLUSTERS)
    assert summary["l1"] == (0 + 0.25 + 0.5 + 1 + 0.625 + 0.25) / 12
    assert summary["edge_precision"] == 2 / 3  # (0,1), (1,0) true; (0,2) not; 0.5 itself is no edge
    assert summary["edge_recall"] == 2 / 4


def test_graph_summary_counts_alive_clients_only():
    weights = {(0, 1): 1.0, (1, 0): 1.0, (0, 2): 1.0, (2, 3): 1.0}
    assert graph_summary(weights, CLUSTERS, alive=[0, 1, 3]) == {
        "l1": 0.0,
        "edge_precision": 1.0,
        "edge_recall": 1.0,
    }


def test_graph_summary_counts_how_far_a_weight_is_from_the_true_one():
    summary = graph_summary({(0, 1): 1.0, (1, 0): 1.0, (2, 3): 0.5}, CLUSTERS)
    assert summary == {"l1": 1.5 / 12, "edge_precision": 1.0, "edge_recall": 0.5}


def test_graph_summary_is_none_where_nothing_can_be_said():
    assert graph_summary({}, CLUSTERS) == {"l1": 4 / 12, "edge_precision": None, "edge_recall": 0.0}
    assert graph_summary({(0, 1): 1.0}, [0, 1]) == {"l1": 0.5, "edge_precision": 0.0, "edge_recall": None}
    assert graph_summary({}, [0]) == {"l1": None, "edge_precision": None, "edge_recall": None}


@given(
    st.lists(st.integers(0, 2), min_size=2, max_size=6),
    st.data(),
)
def test_graph_summary_equals_the_plain_double_loop(clusters, data):
    n = len(clusters)
    weights = data.draw(
        st.dictionaries(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), st.floats(0, 1))
    )
    ordered = [(i, j) for i in range(n) for j in range(n) if i != j]
    truth = {(i, j): float(clusters[i] == clusters[j]) for i, j in ordered}
    learned = [pair for pair in ordered if weights.get(pair, 0) > 0.5]
    hits = sum(truth[pair] for pair in learned)
    summary = graph_summary(weights, clusters)
    l1 = sum(abs(weights.get(pair, 0) - truth[pair]) for pair in ordered) / len(ordered)
    assert summary["l1"] == pytest.approx(l1, abs=1e-9)
    assert summary["edge_precision"] == (hits / len(learned) if learned else None)
    assert summary["edge_recall"] == (hits / sum(truth.values()) if any(truth.values()) else None)


def test_share_better():
    own = {"a": 0.9, "b": 0.5, "c": 0.4, "new": 1.0}
    alone = {"a": 0.8, "b": 0.5, "c": 0.5}
    assert share_better(own, alone) == 1 / 3
    assert share_better(own, alone, higher_is_better=False) == 1 / 3
    assert share_better(own, {}) is None


def test_help_says_by_how_much_and_for_whom():
    own = {"a": 0.75, "b": 0.5, "c": 0.25, "new": 1.0}
    alone = {"a": 0.25, "b": 0.5, "c": 0.5, "gone": 0.5}
    assert gain_summary(own, alone) == {
        "better": 1,
        "worse": 1,
        "mean_alone": 1.25 / 3,
        "mean_gain": 0.25 / 3,
        "least": {"client": "c", "gain": -0.25},
        "most": {"client": "a", "gain": 0.5},
    }
    assert gain_summary(own, alone, higher_is_better=False)["most"] == {"client": "c", "gain": 0.25}
    assert gain_summary(own, {}) is None


def test_targets():
    accuracy = series((0, 0.1), (10, 0.5), (20, 0.4), (30, 0.6))
    sent = series((0, 0), (5, 100), (25, 300))
    assert time_to_target(accuracy, 0.5) == 10.0
    assert time_to_target(accuracy, 0.7) is None
    assert bytes_to_target(accuracy, sent, 0.5) == 100.0
    assert bytes_to_target(accuracy, sent, 0.55) == 300.0
    assert bytes_to_target(accuracy, sent, 0.05) == 0.0
    assert bytes_to_target(accuracy, sent, 0.7) is None


def test_models_that_are_no_numbers_are_not_compared():
    own, alone = {"a": 0.5, "b": math.nan, "c": 0.7}, {"a": 0.4, "b": 0.5, "c": math.nan}
    assert share_better(own, alone) == 1.0
    assert gain_summary(own, alone)["mean_gain"] == pytest.approx(0.1)
    assert gain_summary({"b": math.nan}, alone) is None
