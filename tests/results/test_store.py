import json

import numpy as np
import pytest

from sim.errors import UserError
from sim.results.metrics import GRAPH_SCHEMA, Metrics
from sim.results.store import SUMMARY_KEYS, RunDirectory
from sim.results.trace import Trace

SUMMARY = dict.fromkeys(SUMMARY_KEYS)


def create(tmp_path, **changes) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "runs", "demo", 3, "abc123")
    run.write_summary({**SUMMARY, "scenario": "demo", **changes})
    return run


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_run_is_hidden_until_it_is_finalised(tmp_path):
    run = create(tmp_path)
    assert all(name.startswith(".") for name in entries(tmp_path / "runs"))
    final = run.finalise()
    assert final == tmp_path / "runs" / "demo-3-abc123" == run.path
    assert entries(tmp_path / "runs") == ["demo-3-abc123"]
    assert run.finalise() == final, "twice is once"


def test_everything_written_is_read_back(tmp_path):
    run = create(tmp_path, interrupted=True)
    metrics, trace = Metrics(), Trace()
    metrics.add(1.0, "client-0", "accuracy", 0.5)
    metrics.graph(1.0, 0, 1, 0.25)
    trace.lifecycle(0.0, "client-0", "start")
    run.write_scenario("# Ä question?\n[run]\n")
    run.write_metrics(metrics)
    run.write_events(trace)
    run.write_intervals([("client-0", 0.0, 0.5, "busy")])
    loaded = RunDirectory.load(run.finalise())
    assert loaded.scenario_text() == "# Ä question?\n[run]\n"
    assert loaded.summary()["interrupted"] is True
    assert loaded.scan("metrics").collect().rows() == [(1.0, "client-0", "accuracy", 0.5)]
    assert loaded.scan("graph").collect().rows() == [(1.0, 0, 1, 0.25)]
    assert loaded.scan("events").collect().rows() == [(0.0, "start", "client-0", None, None, None, None)]
    assert loaded.scan("intervals").collect().rows() == [("client-0", 0.0, 0.5, "busy")]


def test_missing_tables_read_as_empty_ones(tmp_path):
    run = create(tmp_path)
    assert run.scan("graph").collect_schema().names() == GRAPH_SCHEMA.names
    assert run.scan("metrics").collect().is_empty()
    assert run.scenario_text() == ""
    run.write_intervals([])
    assert run.scan("intervals").collect().is_empty()


def test_a_rerun_replaces_the_earlier_results_whole(tmp_path):
    first = create(tmp_path, seed=1)
    first.write_scenario("old")
    first.finalise()
    second = create(tmp_path, seed=2)
    assert RunDirectory.load(second.final_path).summary()["seed"] == 1, "the old one stays until the end"
    second.finalise()
    assert entries(second.path) == ["summary.json"]
    assert RunDirectory.load(second.path).summary()["seed"] == 2
    assert entries(tmp_path / "runs") == ["demo-3-abc123"]


def test_two_runs_at_once_do_not_meet(tmp_path):
    first, second = create(tmp_path, seed=1), create(tmp_path, seed=2)
    second.finalise()
    first.finalise()
    assert RunDirectory.load(first.path).summary()["seed"] == 1
    assert entries(tmp_path / "runs") == ["demo-3-abc123"]


def test_a_discarded_run_leaves_nothing_and_a_finished_one_stays(tmp_path):
    finished, abandoned = create(tmp_path), create(tmp_path)
    finished.finalise()
    abandoned.discard()
    finished.discard()
    assert entries(tmp_path / "runs") == ["demo-3-abc123"]


def test_foreign_folders_are_never_replaced(tmp_path):
    (tmp_path / "runs" / "demo-3-abc123").mkdir(parents=True)
    with pytest.raises(UserError, match=r"demo-3-abc123 exists and is no result directory"):
        create(tmp_path)


def test_an_impossible_place_is_refused(tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UserError, match="cannot write results"):
        create(tmp_path)


def test_load_refuses_what_is_no_result_directory(tmp_path):
    with pytest.raises(UserError, match=r"no summary\.json"):
        RunDirectory.load(tmp_path)
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        RunDirectory.load(tmp_path).summary()


def test_summary_is_strict_json(tmp_path):
    run = create(
        tmp_path, seed=np.int64(7), accuracy={"mean": float("nan"), "std": np.float32(0.5)}, extra=(1, 2)
    )
    text = (run.path / "summary.json").read_text()
    assert "NaN" not in text
    summary = json.loads(text)
    assert summary["accuracy"] == {"mean": None, "std": 0.5}
    assert (summary["seed"], summary["extra"]) == (7, [1, 2])


def test_summary_names_missing_keys_and_must_exist(tmp_path):
    run = RunDirectory.create(tmp_path, "demo", 0, "0")
    with pytest.raises(ValueError, match=r"has no summary\.json yet"):
        run.finalise()
    with pytest.raises(ValueError, match="lacks protocol, seed, "):
        run.write_summary({"scenario": "demo"})
