"""Who was hurt by which departure, by hand."""

import pytest

from sim.results.metrics import Metrics
from sim.results.report.blocks import Table
from sim.results.report.page import _moves
from sim.results.report.tables import departure_drops, departure_drops_table
from sim.results.trace import Trace
from sim.results.view import RunView
from tests.results.synthetic import write_run

# At 0, 10, 20 ... s. Client 3 leaves at 25 s, and client 2 with the run of the others at 45.
CURVES = {
    "client-0": [0.5, 0.6, 0.8, 0.5, 0.6, 0.8, 0.9],
    "client-1": [0.5, 0.45, 0.7, 0.69, 0.7, 0.7, 0.7],
    "client-2": [0.5, 0.6, 0.7, 0.8, 0.6, None, None],
    "client-3": [0.5, 0.6, 0.7, None, None, None, None],
}
GONE = [(25.0, "client-3", "leave"), (45.0, "client-2", "crash")]


@pytest.fixture
def view(tmp_path) -> RunView:
    run = write_run(tmp_path, clients=4, clusters=1, evaluations=2, steps=2)
    metrics, trace = Metrics(), Trace()
    for step in range(7):
        for name, curve in CURVES.items():
            if curve[step] is not None:
                metrics.add(10.0 * step, name, "accuracy", curve[step])
    metrics.graph(20.0, 0, 3, 0.4)
    metrics.graph(20.0, 0, 1, 0.8)
    metrics.graph(20.0, 1, 0, 0.5)
    metrics.graph(30.0, 1, 3, 1.0)  # after it went: nothing that was relied on
    for name in CURVES:
        trace.lifecycle(0.0, name, "start")
    for time_s, name, event in GONE:
        trace.lifecycle(time_s, name, event)
    run.write_metrics(metrics)
    run.write_events(trace)
    run.write_summary({**run.summary(), "virtual_seconds": 60.0})
    return RunView(run)


def test_the_deepest_fall_comes_first(view):
    found = departure_drops(view)
    assert [(each.client, each.departure.event) for each in found] == [(0, "leave"), (1, "leave")]
    first, second = found
    assert (first.dip.depth, first.dip.seconds, first.share) == (pytest.approx(0.3), 25.0, 0.5)
    assert (second.dip.depth, second.dip.seconds, second.share) == (pytest.approx(0.01), 15.0, 0.0)
    assert first.usual == 0.0, "it had only risen"
    assert second.usual == pytest.approx(0.9 * 0.05 + 0.1 * -0.25), "interpolated between its two steps"


def test_the_table_has_them_all(view):
    table = departure_drops_table(view)
    rows = [
        [getattr(cell, "shown", cell).replace("\N{NO-BREAK SPACE}", " ") for cell in row]
        for row in table.rows
    ]
    assert rows[0] == ["client-0", "client-3", "leave", "25 s", "30.0", "25 s", "50.0%", "0.0"]
    assert table.heads[4:] == ["drop (points)", "recovery time", "relative weight", "usual drop (points)"]


def test_dips_of_the_mean_are_in_points_too(view):
    """The other three fall from 73.3 % to 63.3 % on average; a dip of 10.0% would read as relative."""
    section = _moves(view)
    assert section is not None
    table = next(block for block in section.blocks if isinstance(block, Table))
    [dip] = [row[4].shown for row in table.rows if row[:2] == ["client-3", "leave"]]
    assert (table.heads[4], dip) == ("dip (points)", "10.0")


def test_distances_have_no_falls_in_points(tmp_path):
    assert (
        departure_drops_table(RunView(write_run(tmp_path, measure="distance", evaluations=5, steps=2)))
        is None
    )
