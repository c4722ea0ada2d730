"""How quantities are spread, by hand; and where clients are."""

import numpy as np
import pytest

from actors.message import Envelope
from sim.results.metrics import Metrics
from sim.results.report.curves import models_over_time
from sim.results.report.distributions import (
    first_times,
    latencies,
    levels,
    staleness_spread,
    time_to_accuracy,
    times_table,
)
from sim.results.report.network_map import network_map
from sim.results.trace import Trace
from sim.results.view import RunView
from tests.results.report.plotly_classes import as_plotly
from tests.results.synthetic import write_run

# At 0, 10, 20, 30 s; the mean is 0.3, 0.45, 0.6, 0.55. The last client comes late, and never has 0.5.
CURVES = {
    "client-0": [0.5, 0.6, 0.8, 0.7],
    "client-1": [0.1, 0.3, 0.6, 0.6],
    "client-2": [None, None, 0.4, 0.35],
}
SENT = [0, 100, 200, 300]
LAST = {"clients": 1, "mean": 0.5}


@pytest.fixture
def run(tmp_path):
    run = write_run(tmp_path, clients=3, clusters=1, evaluations=2, steps=2)
    metrics = Metrics()
    for step in range(4):
        for name, curve in CURVES.items():
            if curve[step] is not None:
                metrics.add(10.0 * step, name, "accuracy", curve[step])
        metrics.add(10.0 * step, "all", "bytes_sent", SENT[step])
    run.write_metrics(metrics)
    run.write_summary({**run.summary(), "virtual_seconds": 30.0})
    return run


def test_time_to_accuracy(run):
    view = RunView(run)
    assert levels(view) == [0.4, 0.5, 0.6]
    assert first_times(view, 0.6).tolist() == [10.0, 20.0, np.inf]
    curve = as_plotly(time_to_accuracy(view)).data[2]
    assert (curve.name, curve.x.tolist()) == ("60.0%", [0, 10, 20, 30])
    assert curve.y == pytest.approx([0, 1 / 3, 2 / 3, 2 / 3])
    rows = [[getattr(cell, "value", None) for cell in row] for row in times_table(view).rows]
    assert rows == [[0.4, 10, 100, 20, 20, 0], [0.5, 20, 200, 20, np.inf, 1], [0.6, 20, 200, 20, np.inf, 1]]


def test_the_target_of_the_scenario_is_one_of_the_levels(run):
    run.write_summary({**run.summary(), "target": {"accuracy": 0.55, "seconds": 20.0, "bytes": 200}})
    assert levels(RunView(run)) == [0.4, 0.5, 0.55, 0.6]
    run.write_summary({**run.summary(), "target": None})


def test_distances_have_no_levels(tmp_path):
    assert time_to_accuracy(RunView(write_run(tmp_path, measure="distance", evaluations=3, steps=2))) is None


def test_latencies_are_from_sending_to_arrival_type_by_type(run):
    trace = Trace()
    models = [(1, 0.0, 0.5), (2, 0.0, 1.5), (3, 1.0, 1.25)]
    for number, sent_s, _ in models:
        trace.message("sent", sent_s, Envelope("client-0", "client-1", None), "Model", 1, number=number)
    trace.message("sent", 1.0, Envelope("client-1", "client-0", None), "Pull", 1, number=4)
    for number, _, arrived_s in sorted(models, key=lambda each: each[2]):
        trace.message(
            "delivered", arrived_s, Envelope("client-0", "client-1", None), "Model", 1, number=number
        )
    trace.message("lost", 2.0, Envelope("client-1", "client-0", None), "Pull", 1, "loss", 4)
    run.write_events(trace)
    view = RunView(run)
    assert {kind: sorted(times) for kind, times in view.latencies_s.items()} == {"Model": [0.25, 0.5, 1.5]}
    (curve,) = as_plotly(latencies(view)).data
    assert (curve.x[0], curve.x[-1], np.interp(0.5, curve.y, curve.x)) == (
        0.25,
        1.5,
        pytest.approx(0.5, abs=0.01),
    )


def test_staleness_is_spread_over_clients_and_evaluations(tmp_path):
    view = RunView(write_run(tmp_path, evaluations=5, steps=2))
    (curve,) = as_plotly(staleness_spread(view)).data
    values = view.panel("staleness").values
    assert np.interp(0.5, curve.y, curve.x) == pytest.approx(np.nanmedian(values), rel=0.05)
    assert (curve.x[0], curve.x[-1]) == (np.nanmin(values), np.nanmax(values))
    assert latencies(view) is None, "no message was kept"


def test_the_models_of_a_client_have_a_curve_each(run):
    assert models_over_time(RunView(run)) is None
    metrics = Metrics()
    for time_s, own, common in ((0.0, 0.1, 0.3), (30.0, 0.9, 0.5)):
        for name, value in (("accuracy", own), ("accuracy_of_own", own), ("accuracy_of_common", common)):
            metrics.add(time_s, "client-0", name, value)
    run.write_metrics(metrics)
    run.write_summary({**run.summary(), "models": {"own": LAST, "common": LAST}})
    curves = as_plotly(models_over_time(RunView(run))).data
    found = {curve.name: (curve.x.tolist(), curve.y.tolist()) for curve in curves}
    assert found == {"own": ([0, 30], [0.1, 0.9]), "common": ([0, 30], [0.3, 0.5])}


def test_what_takes_equally_long_is_not_drawn_as_a_spread(run):
    """Arrival times are sums, so that equal latencies differ in their last digits."""
    trace, end = Trace(), Envelope("client-0", "client-1", None)
    for number in range(1, 40):
        trace.message("sent", number * 0.1, end, "Model", 1, number=number)
        trace.message("delivered", number * 0.1 + 0.023258, end, "Model", 1, number=number)
    run.write_events(trace)
    figure = as_plotly(latencies(RunView(run)))
    assert len(set(figure.data[0].x)) > 1
    assert figure.layout.xaxis.range == pytest.approx((0, 0.046516))


def test_the_map_has_everybody_where_they_are(run):
    paris, tokyo = [48.86, 2.35], [35.68, 139.69]
    places = {"client-0": paris, "client-1": tokyo, "client-2": tokyo, "server": paris}
    run.write_summary({**run.summary(), "places": places})
    trace = Trace()
    for number, to in enumerate(["client-1"] * 8 + ["client-2"], start=1):
        trace.message("sent", 0.0, Envelope("client-0", to, None), "Model", 1, number=number)
    run.write_events(trace)
    figure = as_plotly(network_map(RunView(run)))
    drawn = [each for each in figure.data if each.ids is not None]
    where = {name: (x, y) for each in drawn for name, x, y in zip(each.ids, each.x, each.y, strict=True)}
    assert set(where) == set(places)
    for name, (latitude, longitude) in places.items():
        assert np.hypot(where[name][0] - longitude, where[name][1] - latitude) <= 2.51, name
    widths = {each.name: each.line.width for each in figure.data if each.mode == "lines"}
    assert list(widths) == ["up to 2 messages", "up to 8 messages"]
    assert widths["up to 8 messages"] > widths["up to 2 messages"]
    assert "Tokyo" in figure.data[-1].text and "New York" not in figure.data[-1].text


def test_nobody_has_a_place_in_most_runs(run):
    assert network_map(RunView(run)) is None
