"""What other tools get of a run: as much as its tables have, in a form that they read."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView
from sim.results.waits import kept_waiting_s, waits_of
from tests.simulation.test_results import WORLD
from tests.simulation.worlds import DIGITS, run


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    result = run(tmp_path_factory.mktemp("exports"), DIGITS, *WORLD)
    assert result.directory is not None
    asked = CliRunner().invoke(app, ["report", str(result.directory), "--trace"])
    assert (asked.exit_code, asked.stdout.splitlines()[1]) == (0, f"trace: {result.directory / 'trace.json'}")
    return RunDirectory.load(result.directory)


@pytest.fixture(scope="module")
def trace(directory: RunDirectory) -> list[dict]:
    return json.loads((directory.path / "trace.json").read_text())["traceEvents"]


def names_of(trace: list[dict]) -> dict[int, str]:
    return {each["pid"]: each["args"]["name"] for each in trace if each["name"] == "process_name"}


def test_each_arrow_goes_from_a_sending_to_its_arrival(directory: RunDirectory, trace: list[dict]) -> None:
    names = names_of(trace)
    rows = directory.scan("events").filter(pl.col("peer").is_not_null()).collect()
    sent, delivered = (
        {row["message"]: row for row in rows.filter(pl.col("event") == event).iter_rows(named=True)}
        for event in ("sent", "delivered")
    )
    assert len(sent) == directory.summary()["messages"]["sent"] == max(sent)
    assert len(delivered) == directory.summary()["messages"]["delivered"] > 100
    for kind, end, mine in (("s", "actor", sent), ("f", "peer", delivered)):
        flows = [each for each in trace if each["ph"] == kind]
        found = {each["id"]: (names[each["pid"]], each["ts"]) for each in flows}
        assert len(flows) == len(found)
        assert found == {number: (row[end], pytest.approx(row["time"] * 1e6)) for number, row in mine.items()}
    for number, row in delivered.items():
        same = ("actor", "peer", "type", "bytes")
        assert [row[key] for key in same] == [sent[number][key] for key in same]
        assert row["time"] >= sent[number]["time"]


def test_each_end_of_an_arrow_is_bound_to_a_mark(trace: list[dict]) -> None:
    marks = Counter((each["pid"], each["tid"], each["ts"]) for each in trace if each["ph"] == "X")
    ends = [(each["pid"], each["tid"], each["ts"]) for each in trace if each["ph"] in "sf"]
    assert ends and all(marks[end] for end in ends)


def test_what_devices_did_fills_their_tracks(directory: RunDirectory, trace: list[dict]) -> None:
    names, device = names_of(trace), directory.summary()["device_time"]
    total: Counter[str] = Counter()
    for number, name in names.items():
        slices = [each for each in trace if each["ph"] == "X" and (each["pid"], each["tid"]) == (number, 0)]
        ends = [0.0]
        for each in slices:
            assert each["ts"] == pytest.approx(ends[-1]), name
            ends.append(each["ts"] + each["dur"])
            total[each["name"]] += each["dur"]
        assert ends[-1] == pytest.approx(4e6), name
    assert total["training"] == pytest.approx(device["busy"] * 1e6)
    assert total["waiting"] == pytest.approx(device["waiting"] * 1e6)
    assert total["down"] == pytest.approx(device["down"] * 1e6)


def test_in_rounds_all_of_the_waiting_is_for_peers_the_slow_one_first(tmp_path: Path) -> None:
    slow = "devices.override=[{clients=[2], slowdown=5}]"
    result = run(tmp_path, DIGITS, "protocol.name=dpsgd", "protocol.mode=synchronous", slow)
    assert result.directory is not None
    view = RunView(RunDirectory.load(result.directory))
    waited = waits_of(view, range(len(view.clients)))
    assert waited is not None and view.busy_s is not None
    for client, each in enumerate(waited):
        idle_s = view.up_s[client] - view.busy_s[client]
        in_rounds_s = sum(each.by_sender.values())
        assert each.by_clock_s == 0 and in_rounds_s <= idle_s + 1e-9
        assert (in_rounds_s > 0) is (client != 2), "the slow one waits for nobody"
    kept_s = kept_waiting_s(view)
    assert kept_s is not None and max(kept_s, key=kept_s.__getitem__) == "client-2"


def test_tensorboard_reads_what_was_measured(directory: RunDirectory) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for _ in range(2):  # the second replaces the first
        assert CliRunner().invoke(app, ["report", str(directory.path), "--tensorboard"]).exit_code == 0
    assert len(list(directory.path.glob("events.out.tfevents.*"))) == 1
    read = accumulators.EventAccumulator(str(directory.path), {"scalars": 0}).Reload()
    means = (
        directory.scan("metrics").filter(pl.col("name") == "accuracy").group_by("time").agg(pl.mean("value"))
    )
    expected = means.sort("time").collect().rows()
    assert [(each.wall_time, each.value) for each in read.Scalars("accuracy/mean")] == [
        (time_s, pytest.approx(value)) for time_s, value in expected
    ]
    assert [each.step for each in read.Scalars("all/bytes_sent")] == [
        round(time_s * 1000) for time_s, _ in expected
    ]


@pytest.fixture
def without_tensorboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sim.errors.find_spec", lambda name: None)
    yield


@pytest.mark.usefixtures("without_tensorboard")
def test_without_tensorboard_the_run_is_refused_before_it_begins(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["run", "quickstart", "--tensorboard", "--out", str(tmp_path / "runs")])
    assert (found.exit_code, "pip install 'coterie[tensorboard]'" in found.stderr) == (2, True)
    assert not (tmp_path / "runs").exists()
