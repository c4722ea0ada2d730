"""What a run leaves behind: complete, consistent with itself, and enough to repeat it."""

from pathlib import Path

import polars as pl
import pytest

from sim.results.store.run_directory import RunDirectory
from sim.run.options import RunOptions
from sim.run.running import RunResult, run_scenario
from sim.scenario.scenario import load_scenario
from tests.simulation.worlds import DIGITS, QUADRATIC, load, run

WORLD = (
    "protocol.name=cobo",
    "run.compare_alone=true",
    "run.target_accuracy=0.3",
    "network.loss=0.1",
    "network.link=datagram",
    "network.duplicate=0.1",
    """churn=[
    {at='1 s', event='join', clients=[5]},
    {at='1.5 s', event='crash', clients=[0]},
    {at='2 s', event='leave', clients=[1]},
    {at='3 s', event='rejoin', clients=[0]}]""".replace("\n", " "),
)
COLUMNS = {
    "metrics": ["time", "actor", "name", "value"],
    "graph": ["time", "source", "target", "weight"],
    "events": ["time", "event", "actor", "peer", "type", "bytes", "detail", "message"],
    "intervals": ["actor", "start", "end", "state"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def result(folder: Path) -> RunResult:
    return run(folder, DIGITS, *WORLD)


@pytest.fixture
def directory(result: RunResult) -> RunDirectory:
    return RunDirectory.load(result.directory)


def test_the_summary_has_everything(directory: RunDirectory) -> None:
    summary = directory.summary()
    assert summary["scenario"] == "world"
    assert summary["protocol"] == "cobo"
    assert summary["seed"] == 1
    assert summary["virtual_seconds"] == 4.0
    assert summary["wall_seconds"] > 0
    assert len(summary["trace_hash"]) == 32
    assert summary["clients"] == {
        "initial": 5,
        "joined": 1,
        "left": 1,
        "crashed": 1,
        "rejoined": 1,
        "failed": 0,
        "restarted": 0,
        "turned_away": 0,
        "alive": 5,
    }
    assert set(summary["accuracy"]) == {"clients", "mean", "std", "worst_decile"}
    assert 0 <= summary["better_than_alone"] <= 1
    assert set(summary["graph"]) == {
        "l1",
        "edge_precision",
        "edge_recall",
        "edge_threshold",
        "weights_are_shares",
    }
    assert None not in summary["graph"].values()
    fates = {"delivered", "lost", "dropped", "in_flight"}
    assert set(summary["messages"]) == {"sent", *fates, "duplicated", "bytes"}
    assert {"jobs", "batches", "mean_batch", "seconds"} <= set(summary["engine"])
    assert set(summary["device_time"]) == {"busy", "waiting", "down"}
    assert summary["clusters"] == [0, 0, 0, 1, 1, 1]
    assert summary["client_names"] == [f"client-{k}" for k in range(6)]
    assert summary["failures"] == []
    assert summary["interrupted"] is False
    assert summary["finished"] is True
    assert summary["target"]["accuracy"] == 0.3


def test_the_summary_agrees_with_the_tables(directory: RunDirectory) -> None:
    summary, events = directory.summary(), directory.scan("events").collect()
    fates = dict(events.group_by("event").len().iter_rows())
    messages = summary["messages"]
    assert [fates[fate] for fate in ("sent", "delivered", "lost")] == [
        messages[fate] for fate in ("sent", "delivered", "lost")
    ]
    assert messages["in_flight"] == fates["sent"] - fates["delivered"] - fates["lost"] - fates["dropped"]
    sent = events.filter(event="sent")
    assert sent["bytes"].sum() == messages["bytes"]
    assert sent.filter(detail="duplicate").height == messages["duplicated"] > 0
    by_type = {kind: [count, size] for kind, count, size in by_message_type(sent)}
    assert by_type == summary["bytes_by_type"]
    assert sum(summary["loss_reasons"].values()) == messages["lost"] + messages["dropped"]

    metrics = directory.scan("metrics").collect()
    last = metrics.filter(name="accuracy", time=4.0)
    assert last.height == summary["clients"]["alive"]
    assert last["value"].mean() == pytest.approx(summary["accuracy"]["mean"])
    totals = dict(metrics.filter(actor="all", time=4.0).select("name", "value").iter_rows())
    done = {kind: sum(summary["work"][kind]["clients"]) for kind in ("steps", "samples")}
    flops = totals.pop("flops") / done["samples"]
    assert totals == {"alive": 5, "bytes_sent": messages["bytes"], "messages_sent": messages["sent"]} | {
        "steps_taken": done["steps"]
    }
    assert flops == 4 * 64 * 10  # one layer, forwards and backwards; nobody needs the gradient of the images

    assert sum(summary["device_time"].values()) == pytest.approx(6 * 4.0)
    intervals = directory.scan("intervals").with_columns(span=pl.col("end") - pl.col("start")).collect()
    spans = dict(intervals.group_by("state").agg(pl.col("span").sum()).iter_rows())
    assert spans == pytest.approx({state: summary["device_time"][state] for state in ("busy", "down")})


def test_what_help_was_worth_is_recorded_for_each_client(directory: RunDirectory) -> None:
    metrics, summary = directory.scan("metrics").collect(), directory.summary()
    alone, last, steps = (
        dict(metrics.filter(name=name, time=4.0).select("actor", "value").iter_rows())
        for name in ("accuracy_alone", "accuracy", "training_steps")
    )
    gains = {client: last[client] - alone[client] for client in last if client in alone}
    assert set(alone) == {client for client, count in steps.items() if count > 0}
    assert len(gains) >= 4
    help_ = summary["help"]
    assert help_["mean_gain"] == pytest.approx(sum(gains.values()) / len(gains))
    assert help_["better"] / len(gains) == summary["better_than_alone"]
    assert help_["worse"] == sum(gain < 0 for gain in gains.values())
    assert help_["least"]["gain"] == min(gains.values()) == gains[help_["least"]["client"]]
    assert help_["most"]["gain"] == max(gains.values()) == gains[help_["most"]["client"]]
    page = (directory.path / "report.html").read_text(encoding="utf-8")
    assert "mean of clients trained alone (final)" in page and "smallest gain first" in page


def test_the_steps_of_all_clients_are_the_engines_updates(directory: RunDirectory) -> None:
    steps = directory.scan("metrics").filter(name="training_steps").collect()
    assert steps["actor"].to_list() == [f"client-{k}" for k in range(6)]
    assert (
        steps["value"].sum() >= directory.summary()["engine"]["updates"] > 0
    )  # a crash may leave some unread


def test_the_summary_says_what_each_client_had(directory: RunDirectory) -> None:
    summary, metrics = directory.summary(), directory.scan("metrics").collect()
    work = summary["work"]
    assert list(work) == ["steps", "gradients", "samples", "time", "bytes"]
    for name, key in (("training_steps", "steps"), ("gradients", "gradients"), ("samples_seen", "samples")):
        assert metrics.filter(name=name)["value"].to_list() == work[key]["clients"]
    for of_all in work.values():
        each = of_all["clients"]
        assert len(each) == len(summary["client_names"])
        assert (of_all["min"], of_all["max"]) == (min(each), max(each))
        assert of_all["mean"] == pytest.approx(sum(each) / 6)
    copies = summary["messages"]["duplicated"]
    assert (sum(work["bytes"]["clients"]) < summary["messages"]["bytes"]) == (copies > 0)
    assert sum(work["time"]["clients"]) == pytest.approx(24.0 - summary["device_time"]["down"])
    assert (summary["budget"], summary["alone"]) == (None, False)
    assert "samples seen" in (directory.path / "report.html").read_text(encoding="utf-8")


def test_the_summary_names_the_overrides(directory: RunDirectory) -> None:
    overrides = directory.summary()["overrides"]
    assert set(WORLD) <= set(overrides)
    page = (directory.path / "report.html").read_text(encoding="utf-8")
    assert "<code>--set network.duplicate=0.1</code>" in page


def by_message_type(sent: pl.DataFrame) -> list[tuple[str, int, int]]:
    return sent.group_by("type").agg(pl.len(), pl.col("bytes").sum()).rows()


@pytest.mark.parametrize("table", COLUMNS)
def test_the_tables_have_their_columns(directory: RunDirectory, table: str) -> None:
    content = directory.scan(table).collect()
    assert content.columns == COLUMNS[table]
    assert content.height > 0


def test_the_graph_is_that_of_who_is_up(directory: RunDirectory) -> None:
    graph = directory.scan("graph").collect()
    assert sorted(graph["time"].unique()) == [0.0, 2.0, 4.0]
    assert set(graph.filter(time=2.0).filter(pl.col("weight") > 0)["source"]) == {2, 3, 4, 5}
    assert graph["weight"].is_between(0, 1).all()


def test_the_resolved_scenario_repeats_the_run(folder: Path, result: RunResult) -> None:
    again = load_scenario(result.directory / "scenario.toml")
    assert again == load(folder, DIGITS, *WORLD, "engine.way=dense"), "it names the way that auto took"
    second = run_scenario(again, RunOptions(out=folder / "again", device="cpu"))
    assert second.directory.name == result.directory.name
    assert second.summary["trace_hash"] == result.summary["trace_hash"]


def test_a_second_run_leaves_the_first_as_it_is(folder: Path, result: RunResult) -> None:
    before = result.directory.stat()
    second = run(folder, DIGITS, *WORLD)
    assert second.directory.name == f"{result.directory.name}-2"
    assert result.directory.stat() == before
    assert second.summary["trace_hash"] == result.summary["trace_hash"]
    assert {path.name for path in (folder / "runs").iterdir()} == {
        result.directory.name,
        second.directory.name,
    }


def test_messages_need_not_be_kept(tmp_path: Path) -> None:
    gossip = ("protocol.name=gossip", "run.duration=5 s")
    kept = run(tmp_path, QUADRATIC, *gossip)
    hashed = run(tmp_path, QUADRATIC, *gossip, "run.keep_messages=false")
    assert hashed.summary["trace_hash"] == kept.summary["trace_hash"]
    assert hashed.summary["messages"] == kept.summary["messages"]
    events = RunDirectory.load(hashed.directory).scan("events").collect()
    assert set(events["event"]) == {"start", "checksum"}


def test_a_quadratic_is_judged_by_the_distance_to_its_optimum(tmp_path: Path) -> None:
    summary = run(tmp_path, QUADRATIC, "run.compare_alone=true", "data.noise=0").summary
    assert summary["accuracy"] == {"clients": 0, "mean": None, "std": None, "worst_decile": None}
    assert 0 < summary["distance"]["mean"] < 0.1
    assert summary["better_than_alone"] == 0.0  # nobody is better than itself
    assert summary["graph"] == {"l1": None, "edge_precision": None, "edge_recall": None}


@pytest.mark.parametrize("budget", ["steps=6", "samples=48", "time=750 ms", "bytes=1 kB"])
def test_a_control_with_a_budget_reaches_what_its_replay_reaches(tmp_path: Path, budget: str) -> None:
    kind, _, limit = budget.partition("=")
    control = ("protocol.name=cobo", "protocol.alone=true", f"run.budget.{kind}={limit}")
    result = run(tmp_path, DIGITS, *control, "run.compare_alone=true", "devices.step_time=125 ms")
    summary = result.summary
    assert summary["alone"] and summary["messages"]["sent"] == 0
    finished = 0 if kind == "bytes" else 6  # who sends nothing never spends that one
    steps = 32 if kind == "bytes" else 6
    assert summary["budget"]["finished"] == finished
    assert (summary["work"]["steps"]["min"], summary["work"]["steps"]["max"]) == (steps, steps)
    assert summary["virtual_seconds"] == steps * 0.125
    assert summary["help"]["mean_gain"] == 0.0
    again = load_scenario(result.directory / "scenario.toml")
    assert again.run.budget is not None and again.run.budget.kind == kind
