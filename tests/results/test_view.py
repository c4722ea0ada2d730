import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.message import Envelope
from sim.results.metrics import Metrics
from sim.results.report import page as report
from sim.results.report.curves import clients_up
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import Trace
from sim.results.view import RunView, evenly_spaced_positions
from tests.results.report.plotly_classes import as_plotly
from tests.results.synthetic import LEAST


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    """Three clients over ten seconds: the second crashes and comes back, the third joins at 4 s."""
    run = RunDirectory.create(tmp_path, "tiny", 0, "0")
    run.write_scenario("")
    metrics, trace = Metrics(), Trace()
    for name in ("client-0", "client-1"):
        trace.lifecycle(0.0, name, "start")
    trace.message("sent", 1.0, Envelope("client-0", "client-1", None), "Model", 10)
    trace.lifecycle(2.0, "client-1", "crash")
    trace.lifecycle(4.0, "client-2", "join")
    trace.lifecycle(6.0, "client-1", "rejoin")
    trace.lifecycle(10.0, "client-0", "stop")
    metrics.add(0.0, "client-1", "accuracy", 0.25)
    metrics.add(0.0, "client-0", "accuracy", 0.5)
    metrics.add(5.0, "client-2", "accuracy", 0.75)
    metrics.add(5.0, "client-0", "accuracy", float("nan"))
    metrics.add(5.0, "all", "bytes_sent", 10.0)
    metrics.graph(0.0, 0, 1, 0.5)
    metrics.graph(5.0, 0, 2, 1.0)
    run.write_metrics(metrics)
    run.write_events(trace)
    run.write_intervals(
        [("client-1", 6.0, 9.0, "busy"), ("client-1", 0.0, 1.0, "busy"), ("client-0", 2.0, 3.0, "down")]
    )
    summary = LEAST | {"virtual_seconds": 10.0, "graph": {"l1": 0.5}}
    run.write_summary(summary | {"client_names": ["client-0", "client-1", "client-2"]})
    return run


def test_panel_is_indexed_by_client_with_gaps(run):
    measure, panel = RunView(run).measure
    assert measure.name == "accuracy"
    assert panel.times.tolist() == [0.0, 5.0]
    np.testing.assert_array_equal(panel.values, [[0.5, 0.25, np.nan], [np.nan, np.nan, 0.75]])
    assert [part.tolist() for part in panel.of(2)] == [[5.0], [0.75]]
    mean = panel.mean_of(np.array([True, True, False]))
    assert [part.tolist() for part in mean] == [[0.0], [0.375]]
    assert RunView(run).panel("staleness") is None


def test_presence_follows_the_lifecycle(run):
    view = RunView(run)
    assert view.presence == [[(0.0, 10.0)], [(0.0, 2.0), (6.0, 10.0)], [(4.0, 10.0)]]
    assert view.up_at(3.0).tolist() == [True, False, False]
    assert [(move.time_s, move.client, move.event) for move in view.moves] == [
        (2.0, 1, "crash"),
        (4.0, 2, "join"),
        (6.0, 1, "rejoin"),
    ]


def test_a_client_that_never_started_was_never_up(run):
    names = [f"client-{number}" for number in range(4)]
    run.write_summary(LEAST | {"virtual_seconds": 10.0, "client_names": names})
    view = RunView(run)
    assert view.presence[2:] == [[(4.0, 10.0)], []]
    assert view.up_at(8.0).tolist() == [True, True, True, False]
    assert view.up_s.tolist() == view.training_s.tolist() == [10.0, 6.0, 6.0, 0.0]
    assert as_plotly(clients_up(view)).data[0].y.tolist() == [2.0, 1.0, 2.0, 3.0, 3.0]
    run.write_events(Trace())
    assert RunView(run).presence == [[(0.0, 10.0)]] * 4, "a table without any starts does not tell"


def test_intervals_are_sorted_and_totalled(run):
    view = RunView(run)
    assert [spans.tolist() for spans in view.intervals("busy", range(2))] == [[], [[0.0, 1.0], [6.0, 9.0]]]
    assert view.intervals("down", range(2))[0].tolist() == [[2.0, 3.0]]
    assert [len(spans) for spans in view.intervals("busy", [2, 1, 0])] == [0, 2, 0]
    assert view.busy_s.tolist() == [0.0, 4.0, 0.0]


def test_intervals_and_arrivals_that_were_not_kept_are_none_and_not_empty(run):
    """Empty ones mean idle devices and no messages: code that forgets the case gets an error."""
    run.write_intervals([])
    view = RunView(run)
    assert view.intervals("busy", range(3)) is None and view.intervals("busy", []) is None
    assert view.last_arrivals([0], [np.array([1.0])]) is None


def test_snapshots(run):
    view = RunView(run)
    assert view.snapshot_times(9).tolist() == [0.0, 5.0]
    source, target, weight = view.snapshot(5.0)
    assert {(s, t): w for s, t, w in zip(source, target, weight, strict=True)} == {(0, 2): 1.0, (0, 1): 0.0}


def test_iterations_of_all_lives_are_added(run):
    metrics = Metrics()
    for time_s, count in ((0.0, 0), (1.0, 5), (2.0, 7), (3.0, 2), (4.0, 3)):
        metrics.add(time_s, "client-0", "iterations", count)
    metrics.add(0.0, "client-1", "iterations", 4)
    run.write_metrics(metrics)
    assert RunView(run).iterations.tolist() == [10.0, 4.0, 0.0]


def test_the_worst_come_first_and_the_unmeasured_last(run):
    assert RunView(run).worst_first == [1, 0, 2]
    metrics = Metrics()
    for name, value in (("client-0", 2.0), ("client-2", 3.0)):
        metrics.add(0.0, name, "distance", value)
    run.write_metrics(metrics)
    assert RunView(run).worst_first == [2, 0, 1], "of distances the largest is the worst"


@pytest.mark.parametrize("measure", ["accuracy", "distance"])
def test_help_is_worth_what_the_last_evaluation_says_and_nothing_where_no_model_was_finite(run, measure):
    metrics = Metrics()
    for time_s, values in ((0.0, (0.25, 0.5)), (5.0, (0.75, float("nan"))), (10.0, (float("nan"),) * 2)):
        metrics.add_all(time_s, ["client-0", "client-1"], measure, values)
        metrics.add(time_s, "all", "bytes_sent", time_s)
        if time_s == 5.0:
            metrics.add_all(time_s, ["client-0", "client-1"], f"{measure}_alone", [0.5, 0.5])
            run.write_metrics(metrics)
            [gain] = RunView(run).gains
            assert (gain.client, gain.with_peers, gain.alone) == (0, 0.75, 0.5)
    run.write_metrics(metrics)
    view = RunView(run)
    assert view.gains == [] and np.isnan(view.at_the_end).all()
    page = report.write_report(run).read_text(encoding="utf-8")
    assert "Training with peers and alone" not in page


def test_device_time_per_step(run):
    metrics = Metrics()
    metrics.add(10.0, "client-0", "training_steps", 0)
    metrics.add(10.0, "client-1", "training_steps", 8)
    run.write_metrics(metrics)
    np.testing.assert_array_equal(RunView(run).device_s_per_step, [np.nan, 0.5, np.nan])
    metrics.add_all(10.0, ["client-0", "client-1", "client-2"], "gradients", [0, 8, 0])
    run.write_metrics(metrics)
    np.testing.assert_array_equal(RunView(run).device_s_per_step, [np.nan, 0.25, np.nan])


def test_summary_values_may_be_absent_at_any_depth(run):
    view = RunView(run)
    assert view.get("graph", "l1") == 0.5
    assert view.get("accuracy", "mean") is None
    assert view.get("no", "such", "key") is None


@pytest.mark.parametrize(
    ("toml", "question"),
    [
        ("# Why?\n#  Because.\n[run]\n# not this\n", "Why? Because."),
        ("[run]\n# not this\n", ""),
        ("# alone", "alone"),
        ("", ""),
    ],
)
def test_question_is_the_first_comment(run, toml, question):
    run.write_scenario(toml)
    assert RunView(run).question == question


@given(st.integers(0, 500), st.integers(2, 60))
def test_evenly_keeps_both_ends(count, most):
    chosen = evenly_spaced_positions(count, most).tolist()
    assert len(chosen) == min(count, most)
    assert chosen == sorted(set(chosen))
    assert not chosen or (chosen[0], chosen[-1]) == (0, count - 1)
