"""What other tools get of a run: as much as its tables have, in a form that they read."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from typer.testing import CliRunner

from sim.cli.commands import app
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView
from sim.results.waits import find_waits, kept_waiting_s
from tests.simulation.test_results import WORLD
from tests.simulation.worlds import DIGITS, run


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    result = run(tmp_path_factory.mktemp("exports"), DIGITS, *WORLD)
    assert result.directory is not None
    asked = CliRunner().invoke(app, ["report", str(result.directory), "--trace"])
    assert (asked.exit_code, asked.stdout.splitlines()[1]) == (
        0,
        f"trace: {result.directory / 'trace.pftrace'}",
    )
    return RunDirectory.load(result.directory)


@pytest.fixture(scope="module")
def trace(directory: RunDirectory) -> list[Any]:
    """Packets of the trace, as Perfetto's own classes read them."""
    return list(Trace.FromString((directory.path / "trace.pftrace").read_bytes()).packet)


def tracks(trace: list[Any]) -> dict[int, tuple[str, str]]:
    """Actor and track, by the track's identifier."""
    found = [packet.track_descriptor for packet in trace if packet.HasField("track_descriptor")]
    names = {each.uuid: each.name for each in found}
    return {each.uuid: (names.get(each.parent_uuid, ""), each.name) for each in found}


def events_of(trace: list[Any], track: str) -> list[tuple[str, int, Any]]:
    """Actor, nanoseconds and event of all events of tracks of this name, in the order of the file."""
    names = tracks(trace)
    found = [packet for packet in trace if packet.HasField("track_event")]
    return [
        (names[packet.track_event.track_uuid][0], packet.timestamp, packet.track_event)
        for packet in found
        if names[packet.track_event.track_uuid][1] == track
    ]


@pytest.mark.long
def test_each_flow_goes_from_a_sending_to_its_arrival(directory: RunDirectory, trace: list[Any]) -> None:
    rows = directory.scan("events").filter(pl.col("peer").is_not_null()).collect()
    sent, delivered = (
        {row["message"]: row for row in rows.filter(pl.col("event") == event).iter_rows(named=True)}
        for event in ("sent", "delivered")
    )
    assert len(sent) == directory.summary()["messages"]["sent"] == max(sent)
    assert len(delivered) == directory.summary()["messages"]["delivered"] > 100
    marks = events_of(trace, "messages")
    assert len(marks) == len(rows)
    for field, end, mine in (("flow_ids", "actor", sent), ("terminating_flow_ids", "peer", delivered)):
        flows = [(*getattr(event, field), actor, ns) for actor, ns, event in marks if getattr(event, field)]
        assert len(flows) == len(mine)
        assert {number: (actor, ns) for number, actor, ns in flows} == {
            number: (row[end], round(row["time"] * 1e9)) for number, row in mine.items()
        }
    for number, row in delivered.items():
        same = ("actor", "peer", "type", "bytes")
        assert [row[key] for key in same] == [sent[number][key] for key in same]
        assert row["time"] >= sent[number]["time"]


def test_a_mark_says_from_whom_to_whom_how_much_and_why(directory: RunDirectory, trace: list[Any]) -> None:
    rows = directory.scan("events").filter(pl.col("peer").is_not_null()).collect().iter_rows(named=True)
    for (_, _, event), row in zip(events_of(trace, "messages"), rows, strict=True):
        notes = {each.name: each.string_value or each.int_value for each in event.debug_annotations}
        expected = {"from": row["actor"], "to": row["peer"], "bytes": row["bytes"], "why": row["detail"]}
        assert notes == {name: value for name, value in expected.items() if value}


def test_what_devices_did_fills_their_tracks(directory: RunDirectory, trace: list[Any]) -> None:
    device = directory.summary()["device_time"]
    total: Counter[str] = Counter()
    slices: dict[str, list[tuple[int, Any]]] = {}
    for actor, ns, event in events_of(trace, "device"):
        if event.type != TrackEvent.TYPE_INSTANT:
            slices.setdefault(actor, []).append((ns, event))
    for actor, ends in slices.items():
        last_ns = 0
        for (start_ns, start), (end_ns, end) in zip(ends[::2], ends[1::2], strict=True):
            assert (start.type, end.type) == (TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END)
            assert start_ns == last_ns, actor
            total[start.name] += end_ns - start_ns
            last_ns = end_ns
        assert last_ns == 4 * 10**9, actor
    assert total["training"] == pytest.approx(device["busy"] * 1e9)
    assert total["waiting"] == pytest.approx(device["waiting"] * 1e9)
    assert total["down"] == pytest.approx(device["down"] * 1e9)


def test_counters_have_the_metric_and_the_messages_in_transit(
    directory: RunDirectory, trace: list[Any]
) -> None:
    accuracy = directory.scan("metrics").filter(pl.col("name") == "accuracy").collect()
    found = [
        (actor, ns / 1e9, event.double_counter_value) for actor, ns, event in events_of(trace, "accuracy")
    ]
    assert sorted(found) == sorted(accuracy.select("actor", "time", "value").rows())
    counts = [event.counter_value for _, _, event in events_of(trace, "messages in transit")]
    assert counts[-1] == directory.summary()["messages"]["in_flight"]
    assert min(counts) >= 0 and max(counts) > 1


def test_in_rounds_all_of_the_waiting_is_for_peers_the_slow_one_first(tmp_path: Path) -> None:
    slow = "devices.override=[{clients=[2], slowdown=5}]"
    result = run(tmp_path, DIGITS, "protocol.name=dpsgd", "protocol.mode=synchronous", slow)
    assert result.directory is not None
    view = RunView(RunDirectory.load(result.directory))
    waited = find_waits(view, range(len(view.clients)))
    assert waited is not None and view.busy_s is not None
    for client, each in enumerate(waited):
        idle_s = view.up_s[client] - view.busy_s[client]
        in_rounds_s = sum(each.by_sender.values())
        assert each.by_clock_s == 0 and in_rounds_s <= idle_s + 1e-9
        assert (in_rounds_s > 0) is (client != 2), "the slow one waits for nobody"
    kept_s = kept_waiting_s(view)
    assert kept_s is not None and max(kept_s, key=kept_s.__getitem__) == "client-2"


@pytest.mark.long
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
