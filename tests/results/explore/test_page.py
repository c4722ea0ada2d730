"""The page that walks through a run: its content, its size, and texts that stay texts."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import coterie as front
from actors.message import Envelope
from sim.results.explore import messages
from sim.results.explore.data import Sources
from sim.results.explore.messages import ON_ITS_WAY, read_messages
from sim.results.explore.page import SecondRun, page, write_page
from sim.results.explore.places import places
from sim.results.report.page import write_report
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import Trace
from sim.results.view import RunView
from sim.run.resume.exploring import network_partition_times
from sim.run.resume.lineage import SCHEMA
from tests.results.explore.unpacked import facts_and_columns
from tests.results.synthetic import write_run
from tests.resume.test_resume import coterie
from tests.simulation.worlds import QUADRATIC, run

HOSTILE = '</script><script>alert("&lt;")</script>'


def with_letters(directory: RunDirectory, *letters: tuple[float, str, str, str, int]) -> RunDirectory:
    """Write a trace of messages alone: (time, event, sender, receiver, number)."""
    trace = Trace()
    for time_s, event, sender, receiver, number in letters:
        reason = "down" if event == "dropped" else ""
        envelope = Envelope(sender, receiver, None)
        trace.message(event, time_s, envelope, "Model", 1000 * number, reason, number)
    directory.write_events(trace)
    return directory


LETTERS = (
    (1.0, "sent", "client-0", "client-1", 1),
    (1.5, "sent", "server", "client-2", 2),
    (2.0, "delivered", "client-0", "client-1", 1),
    (2.5, "delivered", "client-0", "client-1", 1),
    (3.0, "dropped", "server", "client-2", 2),
    (4.0, "sent", "client-1", "client-0", 3),
)


def test_messages_have_their_fates(tmp_path: Path) -> None:
    directory = with_letters(write_run(tmp_path, clients=3, clusters=None), *LETTERS)
    found = read_messages(directory, RunView(directory))
    assert found is not None
    assert found.names == ("client-0", "client-1", "client-2", "server")
    assert found.table.select("sent", "end", "from", "to", "fate", "why").rows() == [
        (1.0, 2.0, 0, 1, "delivered", ""),
        (1.0, 2.5, 0, 1, "delivered", ""),
        (1.5, 3.0, 3, 2, "dropped", "down"),
        (4.0, 600.0, 1, 0, ON_ITS_WAY, ""),
    ]


def test_a_page_has_the_messages_as_they_were_sent(tmp_path: Path) -> None:
    directory = with_letters(write_run(tmp_path, clients=3, clusters=None), *LETTERS)
    facts, columns = facts_and_columns(page(directory, "not replayed"))
    assert facts["names"] == ["client-0", "client-1", "client-2", "server"]
    assert (columns["sent"] * facts["tick"]).round(4).tolist() == [1.0, 1.0, 1.5, 4.0]
    assert (columns["took"] * facts["tick"]).round(4).tolist() == [1.0, 1.5, 1.5, 596.0]
    assert [facts["messages"]["fates"][each][0] for each in columns["fate"]] == [
        "delivered",
        "delivered",
        "dropped",
        ON_ITS_WAY,
    ]
    assert len(facts["points"]) == 4
    assert facts["no_sources"] == "not replayed"


def test_too_many_messages_become_numbers_around_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = [(1.0, "sent", "client-0", "client-1", 101), (2.0, "sent", "client-0", "client-1", 102)]
    letters += [(3.0, "delivered", "client-0", "client-1", 102)]  # 101 never arrives
    for number in range(1, 101):
        letters += [(5.0 * number, "sent", "client-0", "client-1", number)]
        letters += [(5.0 * number + 1, "delivered", "client-0", "client-1", number)]
    directory = with_letters(write_run(tmp_path, clients=3, clusters=None), *letters)
    monkeypatch.setattr(messages, "MOST_MESSAGES", 20)
    facts, columns = facts_and_columns(page(directory, "", at_s=250.0))
    sent = (columns["sent"] * facts["tick"]).round(4)
    assert (len(sent), sent[0], sent[-1]) == (21, 1.0, 295.0)
    assert sent[1] == 200.0, "after the message that is on its way when the window starts"
    assert (facts["messages"]["from"], facts["messages"]["to"]) == (200.0, 300.0)
    assert facts["messages"]["count"] == 102
    assert any("21 of 102 messages" in note for note in facts["notes"])
    bins = facts["messages"]["bins"]
    by_bin = columns["sent_in"].reshape(bins, 3)
    assert by_bin.sum(axis=0).tolist() == [102, 0, 0]
    assert columns["got_in"].reshape(bins, 3).sum(axis=0).tolist() == [0, 101, 0]
    assert by_bin[: bins // 2].sum() == 61, "those before the middle of the ten minutes"


def test_shares_are_those_of_recent_training(tmp_path: Path) -> None:
    directory = write_run(tmp_path, clients=2, clusters=None, evaluations=3)
    rows = [
        (300.0, 0, "training", "client-0", 0, 200.0, 300.0, 3.0, 0.75),
        (300.0, 0, "training", "client-1", 1, 200.0, 300.0, 1.0, 0.25),
        (600.0, 0, "start", "", None, None, None, 0.5, None),
        (600.0, 0, "training", "client-1", 1, 500.0, 600.0, 1.0, 0.5),
        (600.0, 0, "training", "client-0", 0, 500.0, 600.0, 1.0, 0.5),
    ]
    sources = Sources(pl.DataFrame(rows, SCHEMA, orient="row"), 100.0, "Shares leave out: nothing.")
    facts, columns = facts_and_columns(page(directory, sources))
    assert facts["sources"]["since"] == [200.0, 500.0]
    shares = columns["made_of"].reshape(2, 2, 2) / 65_535
    assert shares[0, 0].round(3).tolist() == [0.75, 0.25]
    assert shares[1, 0].round(3).tolist() == [0.5, 0.5]
    assert shares[:, 1].sum() == 0


def test_no_text_of_results_becomes_markup(tmp_path: Path) -> None:
    directory = write_run(tmp_path, clients=2, clusters=None)
    letters = [(1.0, "sent", HOSTILE, "client-0", 1), (2.0, "delivered", HOSTILE, "client-0", 1)]
    with_letters(directory, *letters)
    summary = json.loads((directory.path / "summary.json").read_text())
    summary |= {"scenario": HOSTILE, "client_names": [HOSTILE, "client-0"]}
    (directory.path / "summary.json").write_text(json.dumps(summary))
    (directory.path / "scenario.toml").write_text(f"# {HOSTILE}\n[run]\n")
    written = page(directory, f"unknown: {HOSTILE}")
    assert "<script>alert" not in written
    facts, _ = facts_and_columns(written)
    difference = (1.0, (f"{HOSTILE} is sent", HOSTILE), HOSTILE)
    both = page(directory, "", second=SecondRun(directory, HOSTILE, difference=difference))
    assert "<script>alert" not in both
    assert facts_and_columns(both)[0]["pair"]["difference"]["actor"] == HOSTILE
    assert facts_and_columns(both, "-2")[0]["no_sources"] == HOSTILE
    assert facts["names"][0] == HOSTILE
    assert facts["scenario"] == facts["question"] == HOSTILE


@pytest.mark.parametrize(
    "without",
    [
        {"messages": False, "devices": False, "graph": False, "clusters": None},
        {"measure": None, "alone": False, "churn": False},
        {"clients": 1, "clusters": None, "graph": False},
    ],
    ids=lambda without: ", ".join(without),
)
def test_a_page_says_which_parts_a_run_lacks(tmp_path: Path, without: dict[str, Any]) -> None:
    facts, columns = facts_and_columns(page(write_run(tmp_path, **without), "not replayed"))
    notes = " ".join(facts["notes"])
    assert ("kept no messages" in notes) == ("sent" not in columns)
    assert ("learned no weights" in notes) == ("weight" not in columns)
    assert ("no evaluations" in notes) == ("measure" not in columns)
    assert ("no intervals" in notes) == (without.get("devices") is False)


@pytest.mark.parametrize("time_s", [None, float("nan"), float("inf"), -1.0, 1e300])
def test_odd_times_in_results_are_left_out_or_clipped(tmp_path: Path, time_s: float | None) -> None:
    directory = write_run(tmp_path)
    for name, column in (("events", "time"), ("intervals", "end"), ("metrics", "time"), ("graph", "time")):
        file = directory.path / f"{name}.parquet"
        rows = pl.read_parquet(file)
        odd = pl.when(pl.int_range(pl.len()) % 3 == 0).then(pl.lit(time_s, pl.Float64)).otherwise(column)
        rows = rows.with_columns(odd.alias(column))
        rows.write_parquet(file)
    facts, columns = facts_and_columns(page(directory, ""))
    assert all(0 <= mark[0] <= facts["end"] or mark[0] == time_s for mark in facts["marks"])
    assert (columns["measure_time"] * facts["tick"]).max() <= facts["end"]


def test_cuts_come_from_the_scenario() -> None:
    text = '[[network.partition]]\nstart = "1 min"\nend = 90\n'
    assert network_partition_times(text) == [(60.0, 90.0)]
    for damaged in ("", "[network]", "[network]\npartition = 3", '[[network.partition]]\nstart = "x"', "[["):
        assert network_partition_times(damaged) == []


def test_places_are_in_the_picture_and_apart() -> None:
    for groups, servers in (([[0, 1, 2], [3, 4], [5]], 1), ([list(range(12))], 2), ([list(range(400))], 1)):
        points = places(groups, servers, [])
        assert abs(points).max() < 1.2
        assert len({tuple(point) for point in points.round(4).tolist()}) == len(points)
    near = [(each, each + 1) for each in range(99)]
    assert abs(places([list(range(100))], 0, near)).max() <= 1.0


def test_the_command_writes_the_page_of_a_run(tmp_path: Path) -> None:
    path = run(tmp_path, QUADRATIC, "run.duration=2 s", "run.evaluate_every=1 s").directory
    result = coterie("explore", path, "--client", "1", "--at", "1500 ms")
    assert (result.exit_code, result.stdout.strip()) == (0, str(path / "explore.html"))
    facts, columns = facts_and_columns((path / "explore.html").read_text())
    assert (facts["client"], facts["at"]) == (1, 1.5)
    assert facts["sources"]["times"] == [0.0, 1.0, 2.0]
    assert len(columns["made_of"]) == 3 * facts["clients"] ** 2
    assert front.Run(path).explore(client=0, at="1 s") == path / "explore.html"
    result = coterie("explore", path, "--no-replay")
    assert result.exit_code == 0
    facts, _ = facts_and_columns((path / "explore.html").read_text())
    assert "--no-replay" in facts["no_sources"]
    for option, value, problem in (("--client", "99", "must be from 0"), ("--at", "1 h", "ended at 2 s")):
        result = coterie("explore", path, option, value)
        assert result.exit_code == 2
        assert problem in result.stderr


def test_a_run_that_cannot_be_replayed_has_a_page_without_sources(tmp_path: Path) -> None:
    path = run(tmp_path, QUADRATIC, "run.duration=2 s", "run.evaluate_every=1 s").directory
    (path / "reads.log").unlink()
    result = coterie("explore", path)
    assert result.exit_code == 0, result.output
    facts, _ = facts_and_columns((path / "explore.html").read_text())
    assert "reads.log" in facts["no_sources"]
    assert str(path) not in facts["no_sources"]


@pytest.mark.long
def test_a_report_links_to_the_page_once_there_is_one(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    report = write_report(directory)
    assert '<a hidden class="walk"' in report.read_text()
    write_page(directory, "")
    linked = report.read_text()
    assert '<a class="walk" href="explore.html">' in linked
    assert write_report(directory).read_text() == linked
    report.write_bytes(b"\xff")
    write_page(directory, "")
    assert report.read_bytes() == b"\xff"
    report.unlink()
    report.mkdir()
    assert write_page(directory, "").is_file()
