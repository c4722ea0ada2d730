"""Coalitions in the results: the table, the summary's part of it, and the report."""

import math
from pathlib import Path

import pytest

from sim.errors import UserError
from sim.results.metrics import Metrics
from sim.results.report.coalitions import (
    benefit_graph,
    changes_table,
    coalition_groups,
    final_memberships,
    losses_table,
)
from sim.results.report.page import write_report
from sim.results.store.run_directory import RunDirectory, load_checked
from sim.results.view import RunView
from tests.results.report.plotly_classes import as_plotly
from tests.results.synthetic import write_run

LOSSES = {"alone": 0.5, "full": 0.25, "equilibrium": 0.125}


def recorded() -> Metrics:
    """Four clients: 0 and 1 together, 2 and 3 alone, and 3 with 2 from 300 s on."""
    metrics = Metrics()
    for time_s in (0.0, 100.0, 400.0):
        for client in range(4):
            metrics.add(time_s, f"client-{client}", "accuracy", 0.5)
            metrics.add(time_s, f"client-{client}", "iterations", time_s)
        metrics.add(time_s, "all", "bytes_sent", time_s)
        if not time_s:
            continue
        pairs = [(0, 1), (1, 0), *([(2, 3), (3, 2)] if time_s > 300 else [])]
        for client, helper in pairs:
            metrics.graph(time_s, client, helper, 0.4)
        for client, members in ((0, [0, 1]), (1, [0, 1]), (2, [2]), (3, [3])):
            late = time_s > 300 and client > 1
            metrics.coalition(time_s, client, [2, 3] if late else members, 310.0 if late else 90.0, LOSSES)
    return metrics


def written(tmp_path: Path) -> RunDirectory:
    run = write_run(tmp_path, clients=4, clusters=None, churn=False)
    run.write_metrics(recorded())
    return run


def test_a_row_for_each_change() -> None:
    table = recorded().coalition_table()
    assert table is not None
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert rows[:4] == [(100.0, i, c, 90.0, 0.5, 0.25, 0.125) for i, c in enumerate([0, 0, 2, 3])]
    assert rows[4:] == [(400.0, i, 2, 310.0, 0.5, 0.25, 0.125) for i in (2, 3)]


def test_unknown_losses_are_no_news_again() -> None:
    metrics = Metrics()
    for time_s in (1.0, 2.0):
        metrics.coalition(time_s, 0, [0], 0.5, {"alone": 0.5})
    table = metrics.coalition_table()
    assert table is not None and table.num_rows == 1 and math.isnan(table["full"][0].as_py())
    assert Metrics().coalition_table() is None


def test_report(tmp_path: Path) -> None:
    run = written(tmp_path)
    view = RunView(run)
    assert coalition_groups(final_memberships(view)) == [[0, 1], [2, 3]]
    figure = as_plotly(benefit_graph(view))
    assert figure is not None and len(figure.data) == 2 and len(figure.layout.annotations) == 4
    assert {trace.marker.color for trace in figure.data} == {"var(--blue)", "var(--green)"}
    assert [row[1] for row in losses_table(view).rows][::2] == ["client-0, client-1", "client-2, client-3"]
    changes = [(cells[0].value, cells[1]) for cells in changes_table(view).rows]  # type: ignore[union-attr]
    assert changes == [
        (90.0, "client-0, client-1"),
        (90.0, "client-2"),
        (90.0, "client-3"),
        (310.0, "client-2, client-3"),
    ]
    page = write_report(run).read_text()
    assert 'id="benefit-graph"' in page and "Formation of coalitions" in page


def test_who_is_alone_is_not_coloured(tmp_path: Path) -> None:
    run = write_run(tmp_path, clients=2, clusters=None, churn=False)
    metrics = Metrics()
    metrics.graph(1.0, 0, 1, 0.4)
    for client in range(2):
        metrics.coalition(1.0, client, [client], 0.5, LOSSES)
    run.write_metrics(metrics)
    figure = as_plotly(benefit_graph(RunView(run)))
    assert figure is not None and {trace.marker.color for trace in figure.data} == {"var(--panel)"}
    assert len(figure.layout.annotations) == 1, "1 would help 0, who is alone all the same"


def test_other_methods_have_no_table_and_no_section(tmp_path: Path) -> None:
    run = write_run(tmp_path, clients=4, churn=False)
    assert not run.has("coalitions")
    assert "Formation of coalitions" not in write_report(run).read_text()


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    run = written(tmp_path)
    load_checked(run.finalise())
    run.table_path("coalitions").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"coalitions\.parquet does not match checksums\.json"):
        load_checked(run.path)
