import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sim.errors import UserError
from sim.files import machine
from sim.results.metrics import GRAPH_SCHEMA, Metrics
from sim.results.store.manifest import Manifest
from sim.results.store.run_directory import RunDirectory
from sim.results.store.tables import TABLES
from sim.results.trace import Trace
from tests.results.synthetic import LEAST


def create(tmp_path, **changes) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "runs", "demo", 3, "abc123")
    run.write_summary({**LEAST, "scenario": "demo", **changes})
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
    assert loaded.scan("events").collect().rows() == [
        (0.0, "start", "client-0", None, None, None, None, None)
    ]
    assert loaded.scan("intervals").collect().rows() == [("client-0", 0.0, 0.5, "busy")]


def test_empty_tables_are_tables_and_missing_ones_are_refused(tmp_path):
    run = create(tmp_path)
    run.write_metrics(Metrics())
    run.write_intervals([])
    assert run.scan("graph").collect_schema().names() == GRAPH_SCHEMA.names
    assert run.scan("metrics").collect().is_empty()
    assert run.scan("intervals").collect().is_empty()
    with pytest.raises(UserError, match=r"events\.parquet is missing"):
        run.scan("events")
    with pytest.raises(UserError, match=r"scenario\.toml is missing"):
        run.scenario_text()


def test_load_refuses_what_is_no_result_directory(tmp_path):
    with pytest.raises(UserError, match=r"no summary\.json"):
        RunDirectory.load(tmp_path)
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(UserError, match=r"checksums\.json is missing, so these results are incomplete"):
        RunDirectory.load(tmp_path)


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
    with pytest.raises(ValueError, match=r"missing in the summary: accuracy, .*protocol, seed, "):
        run.write_summary({"scenario": "demo"})


def test_a_table_of_many_equal_rows_is_not_unpacked(tmp_path, monkeypatch):
    """A stranger's: few bytes that are more rows than memory holds."""
    rows = 10**6
    table = pa.table(
        {
            "time": pa.array(np.zeros(rows)),
            "actor": pa.array(["client-0"]).take(pa.array(np.zeros(rows, np.int32))),
            "name": pa.array(["accuracy"]).take(pa.array(np.zeros(rows, np.int32))),
            "value": pa.array(np.zeros(rows)),
        },
        schema=TABLES["metrics"],
    )
    pq.write_table(table, tmp_path / "metrics.parquet", compression="zstd")
    (tmp_path / "summary.json").write_text("{}")
    Manifest.of(tmp_path, ["summary.json", "metrics.parquet"]).write()
    directory = RunDirectory.load(tmp_path)
    monkeypatch.setattr(machine, "memory_bytes", lambda: 20 * 2**20)
    with pytest.raises(UserError, match=r"metrics\.parquet: takes 0\.0 GB of memory when read"):
        directory.table_path("metrics")
