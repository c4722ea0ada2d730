"""First difference of two runs that share a past, and their page."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import coterie as front
from actors.message import Envelope
from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import Trace
from sim.run.resume import pasts
from sim.run.resume.pasts import Difference, first_difference
from tests.results.explore.unpacked import facts_and_columns
from tests.results.synthetic import write_run
from tests.resume.test_resume import coterie
from tests.simulation.worlds import QUADRATIC, run

GOSSIP = ("protocol.name=gossip", "run.duration=4 s", "run.evaluate_every=1 s")


def with_events(folder: Path, *events: tuple[float, str, str], messages: bool = True) -> RunDirectory:
    """Results with these events: messages from the named client to client-1, and lifecycle events."""
    folder.mkdir()
    directory = write_run(folder, clients=3, clusters=None)
    trace = Trace(keep_messages=messages)
    for time_s, event, actor in [(0.0, "start", "client-0"), *events]:
        if event in ("sent", "delivered"):
            trace.message(event, time_s, Envelope(actor, "client-1", None), "Model", 10, "", 1)
        else:
            trace.lifecycle(time_s, actor, event)
    directory.write_events(trace)
    return directory


SHARED = (1.0, "sent", "client-0"), (1.5, "delivered", "client-0")


@pytest.mark.parametrize("rows", [1, 2, 1 << 18], ids="{} rows at a time".format)
def test_the_first_event_that_differs_is_found(
    tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pasts, "_ROWS", rows)
    one = with_events(tmp_path / "a", *SHARED, (3.0, "sent", "client-2"))
    other = with_events(tmp_path / "b", *SHARED, (2.0, "crash", "client-2"), (3.0, "sent", "client-2"))
    sent, crash = "Model from client-2 to client-1 is sent at 3 s", "crash of client-2 at 2 s"
    assert first_difference(one, other) == Difference(2.0, (sent, crash), "client-2")
    assert first_difference(other, one) == Difference(2.0, (crash, sent), "client-2")
    assert first_difference(one, one) is None


def test_columns_that_an_older_run_lacks_do_not_differ(tmp_path: Path) -> None:
    one, other = with_events(tmp_path / "a", *SHARED), with_events(tmp_path / "b", *SHARED)
    file = other.path / "events.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["message"]), file)
    assert first_difference(one, other) is first_difference(other, one) is None


def test_a_run_that_ends_earlier_differs_at_the_next_event(tmp_path: Path) -> None:
    one, other = with_events(tmp_path / "a", *SHARED), with_events(tmp_path / "b", *SHARED[:1])
    delivered = "Model from client-0 to client-1 is delivered at 1.5 s"
    assert first_difference(one, other) == Difference(1.5, (delivered, "none, the run has ended"), "client-0")


def test_runs_without_messages_are_compared_by_other_events(tmp_path: Path) -> None:
    one = with_events(tmp_path / "a", *SHARED, (2.0, "crash", "client-2"), messages=False)
    other = with_events(tmp_path / "b", (1.2, "sent", "client-0"), (2.5, "crash", "client-2"))
    found = first_difference(one, other)
    assert found is not None and found.time_s == 2.0


def test_runs_without_a_shared_past_are_refused(tmp_path: Path) -> None:
    one = with_events(tmp_path / "a", *SHARED)
    other = with_events(tmp_path / "b", (0.0, "start", "client-1"))
    with pytest.raises(UserError, match="share no past: their events differ at 0 s"):
        first_difference(one, other)
    scenario = other.path / "scenario.toml"
    scenario.write_text(f"{one.scenario_text()}\n[protocol.x]\nrate = 3\n")
    with pytest.raises(UserError, match=r"share no past: protocol\.x\.rate differs"):
        first_difference(one, other)
    scenario.write_text("[")
    with pytest.raises(UserError, match="damaged"):
        first_difference(one, other)


def test_a_fork_is_shown_beside_its_run(tmp_path: Path) -> None:
    path = run(tmp_path, QUADRATIC, *GOSSIP).directory
    assert path is not None
    done = coterie("fork", path, "--at", "2 s", "--without", "3", "--quiet")
    assert done.exit_code == 0, done.output
    [fork] = [each for each in path.parent.iterdir() if each != path]
    result = coterie("explore", path, fork, "--no-replay")
    assert (result.exit_code, result.stdout.strip()) == (0, str(fork / "explore.html"))
    page = (fork / "explore.html").read_text()
    facts, columns = facts_and_columns(page)
    beside, other_columns = facts_and_columns(page, "-2")
    assert facts["pair"]["runs"] == [path.name, fork.name]
    difference = facts["pair"]["difference"]
    assert difference["time"] == facts["at"] == pytest.approx(2, abs=1e-5)
    assert (difference["actor"], facts["client"]) == ("client-3", 3)
    assert difference["events"][1] == "crash of client-3 at 2 s"
    assert [mark[1:3] for mark in beside["marks"]] == [[3, "crash"]]
    assert facts["marks"] == []
    at = int((columns["sent"] * facts["tick"] <= 2.0).sum())
    assert columns["sent"][:at].tolist() == other_columns["sent"][:at].tolist()
    assert not (path / "explore.html").exists()
    assert front.Run(path).explore(beside=front.Run(fork)) == fork / "explore.html"
    assert "share no past" not in result.stderr


@pytest.mark.long
def test_runs_of_two_seeds_are_refused_by_the_command(tmp_path: Path) -> None:
    one, other = (run(tmp_path, QUADRATIC, *GOSSIP, f"run.seed={seed}").directory for seed in (1, 2))
    result = coterie("explore", one, other)
    assert result.exit_code == 2
    assert "share no past: run.seed differs" in result.stderr
