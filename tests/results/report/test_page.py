import json
import re
import shutil

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plotly.offline import get_plotlyjs

from sim.results.metrics import Metrics, worst_decile
from sim.results.report import curves as figures
from sim.results.report import heatmaps
from sim.results.report.bars import bytes_by_type, gains, work_done
from sim.results.report.curves import clients_up, progress_over_bytes, progress_over_time, weights_over_time
from sim.results.report.heatmaps import learned_graph
from sim.results.report.html import share_script
from sim.results.report.page import write_report
from sim.results.report.style import log_axis
from sim.results.report.timeline import clients_shown, covered, timeline
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import Trace
from sim.results.view import RunView
from tests.results.report.plotly_classes import as_plotly
from tests.results.synthetic import seconds_within, write_run

SMALL = {"evaluations": 5, "steps": 20}


def words(page: str) -> str:
    """The page without its scripts and style sheet."""
    return re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)


def pictures(page: str) -> list[str]:
    return re.findall(r'<div id="([\w-]+)" class="plotly-graph-div"', page)


def test_full_report(tmp_path):
    page = write_report(write_run(tmp_path, **SMALL)).read_text()
    assert pictures(page) == [
        "progress-over-time",
        "progress-over-bytes",
        "time-to-accuracy",
        "gains",
        "graph",
        "learned-graph",
        "weights-over-time",
        "course",
        "listens-to",
        "listened-to",
        "course-0",
        "timeline",
        "work-done",
        "clients-up",
        "bytes-by-type",
        "staleness",
        "staleness-spread",
    ]
    text = words(page)
    assert "Does the &lt;method&gt; find who shares its labels" in text
    assert "<td>client-11</td><td>join</td>" in text
    assert "Interrupted" not in text
    assert text.count('class="number"') == 0 and text.count("class=number") > 50


def test_the_key_of_the_timeline_is_outside_of_what_scrolls(tmp_path):
    page = write_report(write_run(tmp_path, **SMALL)).read_text()
    before = page[: page.index('<div class="scroll"><div id="timeline"')]
    marks = re.findall(r'<i class="([\w-]+)" style="background:var\(--(\w+)\)"></i>(\w+)</span>', before)
    assert marks == [
        ("triangle-up", "green", "arrives"),
        ("triangle-down", "orange", "departs"),
        ("square", "training", "training"),
        ("square", "waiting", "waiting"),
        ("square", "down", "down"),
    ]


def test_page_is_self_contained(tmp_path):
    page = write_report(write_run(tmp_path, **SMALL)).read_text()
    assert page.count("* plotly.js v") == 1
    assert re.findall(r"<(?:script|link|img|iframe)[^>]*\b(?:src|href)=", page.split("</head>")[1]) == []
    assert not re.search(r"<(?:script|link)[^>]*\b(?:src|href)=", page.split("<script>")[0])


def test_same_directory_same_page_and_nothing_else_is_read(tmp_path):
    run = write_run(tmp_path / "first", **SMALL)
    first = write_report(run).read_bytes()
    elsewhere = shutil.copytree(run.finalise(), tmp_path / "elsewhere")
    (elsewhere / "report.html").unlink()
    assert write_report(RunDirectory.load(elsewhere)).read_bytes() == first


def test_small_tables_are_read_once_and_large_ones_in_parts(tmp_path, monkeypatch):
    run, read = write_run(tmp_path, **SMALL), []
    scan = RunDirectory.scan
    monkeypatch.setattr(RunDirectory, "scan", lambda self, table: read.append(table) or scan(self, table))
    small = write_report(run).read_bytes()
    assert len(read) == len(set(read))
    monkeypatch.setattr("sim.results.view._SMALL", 0)
    assert write_report(run).read_bytes() == small
    assert len(read) > 3 * len(set(read))


@pytest.mark.long
@pytest.mark.parametrize(
    ("parts", "absent", "sentence"),
    [
        ({"graph": False}, {"learned-graph", "weights-over-time"}, "learned no collaboration graph"),
        ({"clusters": None}, {"weights-over-time"}, "Row i, column j"),
        ({"staleness": False}, {"staleness"}, "Not recorded: the method does not observe"),
        ({"messages": False}, {"progress-over-bytes", "bytes-by-type"}, "No message was sent"),
        (
            {"measure": None},
            {"progress-over-time", "progress-over-bytes", "gains"},
            "This run has no evaluations",
        ),
        ({"alone": False}, {"gains"}, "of the clients"),
        ({"measure": "distance"}, set(), "distance to the local optimum"),
        ({"interrupted": True}, set(), "was interrupted after 10\N{NO-BREAK SPACE}min of 20"),
        ({"devices": False, "churn": False}, set(), "This run used no device"),
        ({"evaluations": 1}, {"weights-over-time", "progress-over-bytes"}, "test accuracy"),
    ],
)
def test_missing_parts_are_left_out_with_a_sentence(tmp_path, parts, absent, sentence):
    page = write_report(write_run(tmp_path, **{**SMALL, **parts})).read_text()
    assert absent.isdisjoint(pictures(page))
    assert sentence in words(page)


def test_a_run_in_which_nothing_happened_still_has_a_report(tmp_path):
    run = write_run(tmp_path, **SMALL)
    run.write_metrics(Metrics())
    run.write_events(Trace())
    run.write_intervals([])
    page = write_report(run).read_text()
    assert "This run has no evaluations" in words(page)


def test_one_client(tmp_path):
    page = write_report(write_run(tmp_path, clients=1, clusters=1, **SMALL)).read_text()
    assert "learned-graph" not in pictures(page)
    figure = as_plotly(progress_over_time(RunView(write_run(tmp_path / "2", clients=1, clusters=1, **SMALL))))
    assert [trace.name for trace in figure.data] == ["mean", "mean of clients trained alone (final)"]


@pytest.mark.long
def test_a_thousand_clients_are_all_shown_and_fit_into_six_megabytes_beside_plotly(tmp_path):
    run = write_run(tmp_path, clients=1000, clusters=10, reach=4, evaluations=2, steps=4)
    path = write_report(run)
    text = words(path.read_text())
    assert path.stat().st_size < 6_000_000 + len(get_plotlyjs())
    view = RunView(run)
    worst = clients_shown(view)
    last = view.last("accuracy")
    assert worst == np.argsort(last, kind="stable")[:100].tolist()
    assert as_plotly(timeline(view)).data[0].y == tuple(view.clients[client] for client in worst)
    assert "Of 1,000 clients, the 100 with the worst results are shown" in text
    table = text[text.index("<summary>Table of the 1,000 clients, worst first") :]
    assert re.findall(r"<td>(client-\d+)</td>", table) == [view.clients[c] for c in view.worst_first]

    assert "Each row and column stands for several clients" in text
    assert as_plotly(learned_graph(view)).data[0].z.shape == (112, 112)  # 9 clients to a row


def test_failures_are_listed_and_escaped(tmp_path):
    run = write_run(tmp_path, **SMALL)
    run.write_summary({**run.summary(), "failures": ["client-2 at 3.5 s: ValueError: <b>"]})
    text = words(write_report(run).read_text())
    assert "<li>client-2 at 3.5 s: ValueError: &lt;b&gt;</li>" in text


def test_unknown_numbers_take_no_room(tmp_path):
    run = write_run(tmp_path, **SMALL)
    nothing = {"l1": None, "edge_precision": None, "edge_recall": None}
    run.write_summary({**run.summary(), "graph": nothing, "loss_reasons": {"partition": 3}})
    text = words(write_report(run).read_text())
    assert "Precision / recall" not in text and "<h3>Graph</h3>" not in text
    assert "<td>partition</td><td class=number>3</td>" in text


def test_progress_shows_the_numbers_measured(tmp_path):
    view = RunView(write_run(tmp_path, **SMALL))
    _, panel = view.measure
    traces = {trace.name: trace for trace in as_plotly(progress_over_time(view)).data}
    np.testing.assert_array_equal(traces["mean"].x, panel.times / 60)
    np.testing.assert_array_equal(traces["mean"].y, np.nanmean(panel.values, axis=1))
    last = panel.values[-1][~np.isnan(panel.values[-1])]
    assert traces["worst 10%"].y[-1] == worst_decile(last)
    assert traces["mean"].customdata[-1][1] == len(last) == 11
    assert (
        as_plotly(progress_over_bytes(view)).data[2].x.tolist() == (4.1e4 * 12 * panel.times / 1e6).tolist()
    )


def test_arrivals_and_departures_differ_by_shape_and_say_who(tmp_path, monkeypatch):
    run = write_run(tmp_path, **SMALL)
    marks = as_plotly(progress_over_time(RunView(run))).layout.annotations
    up, down = "\N{BLACK UP-POINTING TRIANGLE}", "\N{BLACK DOWN-POINTING TRIANGLE}"
    assert [mark.text for mark in marks] == [up, down, down, up]
    assert marks[0].hovertext == "client-11: join at 2\N{NO-BREAK SPACE}min"
    assert "Thin dashed lines mark arrivals" in words(write_report(run).read_text())
    monkeypatch.setattr(figures, "MOST_MOVE_LINES", 3)
    assert not as_plotly(progress_over_time(RunView(run))).layout.annotations
    assert "Thin dashed lines" not in words(write_report(run).read_text()), "they are not there"


def test_on_a_phone_heat_maps_keep_a_readable_width_and_scroll_by_themselves(tmp_path):
    page = write_report(write_run(tmp_path, **SMALL)).read_text()
    for name, least in (("learned-graph", 720), ("timeline", 560)):
        div = f'<div class="scroll"><div id="{name}" class="plotly-graph-div" style="'
        assert page.split(div)[1].split('"')[0].endswith(f"min-width:{least}px")
    assert ".scroll { overflow-x: auto; }" in page


def test_progress_of_distances_is_logarithmic_and_its_worst_are_the_largest(tmp_path):
    view = RunView(write_run(tmp_path, measure="distance", **SMALL))
    figure = as_plotly(progress_over_time(view))
    traces = {trace.name: trace for trace in figure.data}
    assert figure.layout.yaxis.type == "log"
    assert (np.array(traces["worst 10%"].y) > traces["mean"].y).all()


def test_the_ticks_of_a_logarithmic_axis_can_be_read():
    """All nine digits of a decade lie on each other, and plotly draws all but the 1 small."""
    assert log_axis(0.2, 2.3) == {
        "type": "log", "exponentformat": "power", "dtick": "D2", "tickformat": "~g",
    }  # fmt: skip
    assert log_axis(0.001, 2.3)["dtick"] == 1


def test_what_hardly_falls_is_drawn_on_an_even_axis(tmp_path):
    run = write_run(tmp_path, measure="loss", **SMALL)
    metrics = run.scan("metrics").collect()
    of_loss = pl.col("name") == "loss"
    near = pl.when(of_loss).then(2 + pl.col("value") / pl.col("value").filter(of_loss).max())
    metrics.with_columns(value=near.otherwise(pl.col("value"))).write_parquet(run.path / "metrics.parquet")
    assert as_plotly(progress_over_time(RunView(run))).layout.yaxis.type is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("measure", ["accuracy", "loss", "distance"])
def test_numbers_that_are_too_large_to_draw_are_passed_over(tmp_path, measure):
    run = write_run(tmp_path, measure=measure, **SMALL)
    metrics = run.scan("metrics").collect()
    beyond = pl.when(pl.col("name") == measure).then(1e300).otherwise(pl.col("value"))
    metrics.with_columns(value=beyond).write_parquet(run.path / "metrics.parquet")
    assert "Timeline" in words(write_report(run).read_text())


def test_learned_graph_blanks_the_diagonal_and_absent_clients(tmp_path):
    figure = as_plotly(learned_graph(RunView(write_run(tmp_path, **SMALL))))
    first, last, truth = figure.data[0], figure.data[-2], figure.data[-1]
    absent_at_first = np.eye(12, dtype=bool)
    absent_at_first[11] = absent_at_first[:, 11] = True  # client 11 joins later
    np.testing.assert_array_equal(np.isnan(first.z), absent_at_first)
    np.testing.assert_array_equal(np.isnan(truth.z), np.eye(12, dtype=bool))
    assert truth.z[0, 2] == 1 and truth.z[0, 3] == 0
    assert [trace.visible for trace in figure.data[:-1]] == [False] * 4 + [True]
    assert last.zmin == truth.zmin == 0
    steps = figure.layout.sliders[0].steps
    assert [step.label.replace("\N{NO-BREAK SPACE}", " ") for step in steps] == [
        "0 s",
        "2 min 30 s",
        "5 min",
        "7 min 30 s",
        "10 min",
    ]
    assert steps[1].args[0] == {"visible": [False, True, False, False, False]}
    assert steps[1].args[1] == (0, 1, 2, 3, 4), "the true graph stays"


def test_learned_graph_averages_blocks(tmp_path, monkeypatch):
    run = write_run(tmp_path, clients=5, clusters=1, evaluations=1, churn=False, steps=4)
    weights = {(s, t): w for _, s, t, w in run.scan("graph").collect().rows()}
    monkeypatch.setattr(heatmaps, "MOST_GRAPH_ROWS", 3)
    figure = as_plotly(learned_graph(RunView(run)))
    z = figure.data[0].z
    assert figure.data[0].y == ("client-0 … client-1", "client-2 … client-3", "client-4")
    assert z.shape == (3, 3)
    assert z[0, 0] == pytest.approx((weights[0, 1] + weights[1, 0]) / 2, abs=6e-4)
    assert z[0, 2] == pytest.approx((weights[0, 4] + weights[1, 4]) / 2, abs=6e-4)
    assert np.isnan(z[2, 2])


@pytest.mark.parametrize("scale", [1.0, 0.0025, 4e-7])
def test_weights_are_rounded_to_three_digits_of_the_largest(scale):
    sums = scale * np.array([[0.0, 1.0], [0.1234, 0.0]])
    counts = np.array([1, 1])
    found = heatmaps._Cells._mean(None, sums, counts)
    assert found[0, 1] == pytest.approx(scale, rel=1e-6)
    assert found[1, 0] == pytest.approx(0.123 * scale, rel=1e-2)
    assert (heatmaps._Cells._mean(None, np.zeros((2, 2)), counts)[[0, 1], [1, 0]] == 0).all()


def test_clients_are_ordered_by_cluster(tmp_path):
    run = write_run(tmp_path, clients=4, clusters=2, evaluations=1, churn=False, steps=4)
    run.write_summary({**run.summary(), "clusters": [1, 0, 1, 0]})
    figure = as_plotly(learned_graph(RunView(run)))
    assert figure.data[0].y == ("client-1", "client-3", "client-0", "client-2")
    assert figure.data[1].z[0].tolist()[1:] == [1.0, 0.0, 0.0]


def test_mean_weights_inside_and_across(tmp_path):
    run = write_run(tmp_path, clients=4, clusters=2, evaluations=2, churn=False, steps=4)
    weights = {(s, t): w for time, s, t, w in run.scan("graph").collect().rows() if time == 600.0}
    inside, across = as_plotly(weights_over_time(RunView(run))).data
    pairs = [(0, 1), (1, 0), (2, 3), (3, 2)]
    assert inside.y[-1] == pytest.approx(sum(weights[pair] for pair in pairs) / 4)
    others = sum(weight for pair, weight in weights.items() if pair not in pairs)
    assert across.y[-1] == pytest.approx(others / 8)


def test_timeline_shows_training_absence_and_moves(tmp_path):
    figure = as_plotly(timeline(RunView(write_run(tmp_path, **SMALL))))
    training, states = figure.data[0].z, figure.data[0].customdata
    assert np.isnan(training[11, 0]) and states[11, 0].tolist() == [0, 0, 1], "client 11 is not there yet"
    assert np.isnan(training[0, 200]) and not np.isnan(training[0, -1]), "client 0 crashed and came back"
    assert (training[3] == 1).all(), "the slow one never waits"
    np.testing.assert_array_equal(np.isnan(training), states[:, :, 2] > 0.5)
    marks = {trace.name: trace for trace in figure.data if trace.name in ("arrives", "departs")}
    assert marks["arrives"].x == (2.0, 8.0) and marks["arrives"].y == ("client-11", "client-0")
    assert marks["departs"].x == (5.0, 7.5) and marks["departs"].y == ("client-0", "client-5")
    assert [marks[name].marker.symbol for name in ("arrives", "departs")] == ["triangle-up", "triangle-down"]


def test_what_a_tooltip_in_the_timeline_says_is_what_the_device_did(tmp_path):
    run = write_run(tmp_path, **SMALL)
    maps = [trace for trace in as_plotly(timeline(RunView(run))).data if trace.type == "heatmap"]
    assert len(maps) == 1, "what lies on top gets all tooltips, also where it is empty"
    says = "training <b>%{customdata[0]:.1%}</b>, waiting %{customdata[1]:.1%}, down %{customdata[2]:.1%}"
    assert says in maps[0].hovertemplate
    width_s = 600.0 / len(maps[0].x)
    intervals = run.scan("intervals").collect()
    for row, name in enumerate(maps[0].y):
        for column in range(0, len(maps[0].x), 7):
            training, down = (
                seconds_within(intervals, name, state, column * width_s, (column + 1) * width_s) / width_s
                for state in ("busy", "down")
            )
            said = maps[0].customdata[row, column]
            assert said == pytest.approx([training, 1 - training - down, down], abs=1e-4)


def test_bytes_by_type_puts_the_largest_on_top(tmp_path):
    bar = as_plotly(bytes_by_type(RunView(write_run(tmp_path, **SMALL)))).data[0]
    assert bar.y == ("Hello", "Gradient", "Model")
    assert bar.x[-1] == 249.0


def test_alone_is_drawn_as_a_level_and_client_by_client(tmp_path):
    run = write_run(tmp_path, **SMALL)
    view = RunView(run)
    recorded = run.scan("metrics").filter(pl.col("name") == "accuracy_alone").collect()
    level = next(
        trace
        for trace in as_plotly(progress_over_time(view)).data
        if trace.name == "mean of clients trained alone (final)"
    )
    assert level.y.tolist() == [pytest.approx(recorded["value"].mean())] * 2
    assert level.x.tolist() == [0, 10]
    alone = dict(zip(recorded["actor"], recorded["value"], strict=True))
    final = dict(zip(view.clients, view.measure[1].values[-1], strict=True))
    expected = sorted((final[name] - alone[name], name) for name in alone if final[name] == final[name])
    assert len(expected) == 11, "client 5 has left"
    assert [(gain.difference, view.clients[gain.client]) for gain in view.gains] == expected
    bars = [
        (height / 100, name)
        for trace in as_plotly(gains(view)).data
        for height, (name, _, _) in zip(trace.y, trace.customdata, strict=True)
    ]
    assert sorted(bars) == [(pytest.approx(difference), name) for difference, name in expected]
    table = words(write_report(run).read_text()).split("smallest gain first")[1].split("</table>")[0]
    assert re.findall(r"<td>(client-\d+)</td>", table) == [name for _, name in expected]


def test_of_distances_the_smaller_one_is_the_better(tmp_path):
    view = RunView(write_run(tmp_path, measure="distance", **SMALL))
    assert len(view.gains) == 11
    assert all(gain.difference == gain.alone - gain.with_peers for gain in view.gains)


def test_slow_devices_stand_out_among_the_iterations(tmp_path):
    slow, others = as_plotly(work_done(RunView(write_run(tmp_path, **SMALL)))).data
    assert (slow.name, [name for name, _ in slow.customdata]) == ("slow devices", ["client-3"])
    assert sorted([*slow.x, *others.x]) == list(range(12))
    assert list(others.y) == sorted(others.y)


def test_clients_up_is_counted_at_every_move(tmp_path):
    curve = as_plotly(clients_up(RunView(write_run(tmp_path, **SMALL)))).data[0]
    assert (curve.x.tolist(), curve.y.tolist()) == ([0, 2, 5, 7.5, 8, 10], [11, 12, 11, 10, 11, 11])


def test_overrides_stand_beside_the_comment_and_are_escaped(tmp_path):
    run = write_run(tmp_path, **SMALL)
    assert "--set" not in words(write_report(run).read_text())
    stated = {"overrides": ["--unset network.loss", 'run.name="<i>"'], "notices": ["left out: <rho>"]}
    run.write_summary(run.summary() | stated)
    heading = words(write_report(run).read_text()).split("</header>")[0]
    assert "<code>--unset network.loss</code> <code>--set run.name=&#34;&lt;i&gt;&#34;</code>" in heading
    assert "describes the scenario file" in heading and "; left out: &lt;rho&gt;</p>" in heading


def test_nothing_in_a_figure_can_end_its_script(tmp_path):
    run = write_run(tmp_path, **SMALL)
    run.write_summary({**run.summary(), "bytes_by_type": {"</script><b>": [1, 9]}})
    page = write_report(run).read_text()
    stored = re.search(r'id="bytes-by-type-figure">(.*?)</script>', page)[1]
    assert json.loads(stored)["data"][0]["y"] == ["</script><b>"]


def test_covered_by_hand():
    spans = np.array([[0.5, 1.0], [1.0, 1.25], [2.0, 5.0]])
    assert covered(spans, np.array([0.0, 1.0, 2.0, 3.0])).tolist() == [0.5, 0.25, 1.0]
    assert covered(np.empty((0, 2)), np.array([0.0, 1.0])).tolist() == [0.0]


@given(st.lists(st.integers(1, 8), max_size=8), st.integers(1, 6))
def test_covered_loses_no_time(gaps, bins):
    ends = np.cumsum(gaps).astype(float)
    spans = ends[: len(ends) // 2 * 2].reshape(-1, 2)
    edges = np.linspace(0, 64, bins + 1)
    assert covered(spans, edges).sum() == pytest.approx(np.diff(spans, axis=1).sum())


@pytest.mark.long
def test_reports_of_a_sweep_share_their_script(tmp_path):
    runs = [write_run(tmp_path, evaluations=1, steps=2, seed=seed) for seed in (1, 2)]
    for run in runs:
        write_report(run)
        share_script(run.path / "report.html")
    pages = [(run.path / "report.html").read_text() for run in runs]
    assert all(len(page) < 500_000 and '<script src="../plotly.min.js"' in page for page in pages)
    assert (tmp_path / "plotly.min.js").read_text() == get_plotlyjs()
    assert not list(tmp_path.rglob("*.new"))
    assert get_plotlyjs() in write_report(runs[0]).read_text(), (
        "as `coterie report` makes it, it stands alone"
    )
