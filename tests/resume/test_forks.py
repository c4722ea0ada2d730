"""A fork has its parent's past and another future: it is the full run of the changed scenario."""

import base64
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sim.results.report.curves import fork_differences_table
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView
from sim.run.options import RunOptions
from sim.run.resume.resuming import ResumableRun
from sim.run.running import run_scenario
from sim.run.save.progress import RUNNING, Progress
from tests.resume.same import require_same
from tests.resume.test_resume import BUSY, SHORTLY, coterie
from tests.simulation.worlds import QUADRATIC, write

CRASHES = """\
[[churn]]
at = "800 ms"
event = "crash"
clients = [1, 2]

[[churn]]
at = "1200 ms"
event = "rejoin"
clients = [1]
state = "fresh"
"""
WEATHER = """\
[[network.partition]]
start = "650 ms"
end = "1 s"
groups = [[0, 1], [2, 3]]

[[devices.slowdown]]
clients = [0]
start = "700 ms"
end = "1 s"
factor = 4
"""
OPTIONS = [word for each in SHORTLY for word in ("--set", each)]
QUIET = ["--quiet", "--device", "cpu"]


def done(*words: object) -> Path:
    result = coterie(*words, *QUIET)
    assert result.exit_code == 0, result.output
    return Path(result.stdout.splitlines()[-1].removeprefix("report: ")).parent


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parent")
    file = write(folder, BUSY)
    return done("run", file, "--out", folder / "runs", *OPTIONS, "--checkpoint-at", "600 ms")


SETTINGS = {
    "network.loss": "0.3",
    "network.latency": "80 ms",
    "network.uplink": "1 Mbit/s",
    "network.downlink": "2 Mbit/s",
    "training.learning_rate": "0.02",
    "protocol.local_steps": "4",
    "protocol.rho": "0.5",
}
CHANGE = """\
[[change]]
at = "600 ms"
network = { loss = 0.3, latency = "80 ms", uplink = "1 Mbit/s", downlink = "2 Mbit/s" }
training = { learning_rate = 0.02 }
protocol = { local_steps = 4, rho = 0.5 }
"""


def fork_is_full_run(folder: Path, parent: Path, changes: str, *options: str, stated: str = "") -> Path:
    more = write(folder, changes, "more.toml")
    fork = done("fork", parent, "--at", "600 ms", "--from-toml", more, *options)
    assert RunDirectory.load(fork).summary()["fork"] == {"of": parent.name, "at": 0.6}
    whole = done("run", write(folder, f"{BUSY}\n{changes}{stated}"), "--out", folder / "runs", *OPTIONS)
    require_same(whole, fork)
    return fork


def test_a_fork_without_changes_repeats_the_run_and_says_so(parent: Path) -> None:
    result = coterie("fork", parent, "--at", "600 ms", *QUIET)
    assert result.exit_code == 0 and "nothing is changed, so the fork repeats the run\n" in result.stderr
    require_same(parent, Path(result.stdout.splitlines()[-1].removeprefix("report: ")).parent)


def test_a_fork_with_other_events_is_the_full_run_with_them(tmp_path: Path, parent: Path) -> None:
    fork_is_full_run(tmp_path, parent, CRASHES + WEATHER)


@pytest.mark.long
@pytest.mark.report
def test_a_fork_with_other_settings_is_the_full_run_with_changes(tmp_path: Path, parent: Path) -> None:
    options = [word for each in SETTINGS.items() for word in ("--set", "=".join(each))]
    fork = fork_is_full_run(tmp_path, parent, "", *options, stated=CHANGE)
    report_shows_both_futures(fork, parent)
    runs = [RunDirectory.load(path) for path in (parent, fork)]
    events = [run.scan("events").filter(pl.col("time") <= 0.6).collect() for run in runs]
    assert events[0].equals(events[1])
    assert runs[0].summary()["trace_hash"] != runs[1].summary()["trace_hash"]


@pytest.mark.long
def test_a_lost_copy_of_the_parents_measurements_is_told(
    tmp_path: Path, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the results goes while the fork runs: they are saved elsewhere, but for what is lost."""
    out = tmp_path / "runs"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    earlier = ResumableRun.find(parent, 0.6)
    scenario = earlier.scenario(more=write(tmp_path, CHANGE, "more.toml"))

    def lose(progress: Progress) -> None:
        for folder in out.glob(".*") if progress.phase != RUNNING or progress.virtual_s > 1.0 else ():
            shutil.rmtree(folder, ignore_errors=True)

    result = run_scenario(scenario, RunOptions(out=out, device="cpu", progress=lose), earlier=earlier)
    assert any(name.startswith("parent.parquet: ") for name in result.unwritten), result.unwritten


def numbers(stored: dict[str, Any], axis: str) -> list[float]:
    """Of a trace, as plotly writes them."""
    values = stored[axis]
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]).tolist()
    return list(values)


def report_shows_both_futures(fork: Path, parent: Path) -> None:
    page = (fork / "report.html").read_text()
    stored = re.search(r'id="fork-and-parent-curves-figure">(.*?)</script>', page)
    assert stored is not None
    lines = {each["name"]: each for each in json.loads(stored[1])["data"]}
    assert list(lines) == ["before the fork", "this run", "parent"]
    assert numbers(lines["before the fork"], "x") == [0.0, 0.5]
    assert numbers(lines["this run"], "x") == numbers(lines["parent"], "x") == [0.5, 1.0, 1.5]
    views = {"this run": RunView(RunDirectory.load(fork)), "parent": RunView(RunDirectory.load(parent))}
    assert views["this run"].fork_s == 0.6
    at_end = {}
    for name, view in views.items():
        panel = view.panel("accuracy")
        assert panel is not None
        assert numbers(lines[name], "y") == pytest.approx(np.nanmean(panel.values[1:], axis=1))
        at_end[name] = panel.values[-1]
    table = fork_differences_table(views["this run"])
    assert table is not None and len(table.rows) == 6
    for row in table.rows:
        client, *cells = row
        place = views["this run"].clients.index(str(client))
        theirs, ours = at_end["parent"][place], at_end["this run"][place]
        assert [getattr(cell, "value", None) for cell in cells] == pytest.approx(
            [1.5, theirs, ours, ours - theirs]
        )
        assert f">{client}<" in page.partition("Difference by client")[2].partition("</table>")[0]


STAY = """\
[[change]]
at = "600 ms"
churn = { stay = "10 s", clients = [4, 5] }
"""


def test_a_fork_in_which_nobody_goes_is_the_full_run(tmp_path: Path) -> None:
    """Those who would have gone for good, and those who would have come back; ties are shuffled."""
    text = BUSY.replace("[run]", "[run]\nshuffle_ties = true")
    text += """
[[churn]]
at = "1 s"
event = "leave"
clients = [4, 5]

[[churn]]
at = "1300 ms"
event = "rejoin"
clients = [5]
"""
    options = [*OPTIONS, "--out", tmp_path / "runs"]
    parent = done("run", write(tmp_path, text), *options, "--checkpoint-at", "600 ms")
    fork = done("fork", parent, "--at", "600 ms", "--from-toml", write(tmp_path, STAY, "more.toml"))
    require_same(done("run", write(tmp_path, f"{text}\n{STAY}"), *options), fork)
    moves = [RunDirectory.load(path).summary()["clients"] for path in (parent, fork)]
    assert [(each["left"], each["crashed"], each["rejoined"]) for each in moves] == [(2, 1, 2), (0, 1, 1)]
    more = write(tmp_path, STAY.replace("[4, 5]", "[3]"), "more.toml")
    result = coterie("fork", parent, "--at", "600 ms", "--from-toml", more, *QUIET)
    assert result.exit_code == 2
    assert "change.0.churn: none of its clients leaves or crashes between 0.6 s and 10.6 s" in result.stderr
    more = write(tmp_path, STAY.replace("churn", "chorn"), "more.toml")
    result = coterie("fork", parent, "--at", "600 ms", "--from-toml", more, *QUIET)
    assert (
        result.exit_code == 2 and f"the entries of {more} are added after those of the run" in result.stderr
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("churn.0.at=400 ms", "churn.0.at belongs to an entry that starts at or before --at (0.6 s)"),
        ("churn.1.at=600 ms", "churn.1.at belongs to an entry that starts at or before --at (0.6 s)"),
        ("network.link=datagram", "network.link cannot change during a run. After --at, these can"),
        ("protocol.domain=simplex", "protocol.domain cannot change during a run"),
        ("protocol.local_steps=0", "change.protocol.local_steps = 0: must be more than 0"),
    ],
)
def test_the_past_cannot_be_changed(parent: Path, change: str, problem: str) -> None:
    result = coterie("fork", parent, "--at", "600 ms", "--set", change, *QUIET)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_what_the_past_hangs_on_cannot_change(tmp_path: Path, parent: Path) -> None:
    """Who joins later was absent before: another past, though no entry says so."""
    more = write(tmp_path, '[[churn]]\nat = "1 s"\nevent = "join"\nclients = [0]\n', "more.toml")
    result = coterie("fork", parent, "--at", "600 ms", "--from-toml", more, *QUIET)
    assert result.exit_code == 2
    assert "cannot continue from 0.6 s: " in result.stderr


def test_a_fork_whose_server_crashes_is_the_full_run(tmp_path: Path) -> None:
    text = BUSY.replace('"cobo"', '"fedavg"')
    crash = '[server]\n[[server.crash]]\nat = "700 ms"\nback = "1 s"\nstate = "keep"\n'
    changed = '[[change]]\nat = "600 ms"\nprotocol = { local_steps = 5, fraction = 0.5 }\n'
    options = [*OPTIONS, "--out", tmp_path / "runs"]
    parent = done("run", write(tmp_path, f"{text}\n[server]\n"), *options, "--checkpoint-at", "600 ms")
    more = write(
        tmp_path, f'{changed}[[server.crash]]\nat = "700 ms"\nback = "1 s"\nstate = "keep"\n', "more.toml"
    )
    fork = done("fork", parent, "--at", "600 ms", "--from-toml", more)
    require_same(done("run", write(tmp_path, f"{text}\n{changed}{crash}"), *options), fork)
    assert (
        RunDirectory.load(fork).summary()["trace_hash"] != RunDirectory.load(parent).summary()["trace_hash"]
    )


def test_more_events_leave_the_order_of_ties_before_them(tmp_path: Path) -> None:
    """With a checkpoint or without one: all steps of these devices, and so all messages, are at once."""
    text = QUADRATIC.replace('"local"', '"fedavg"').replace("[run]", "[run]\nshuffle_ties = true")
    text += '[[churn]]\nat = "1 s"\nevent = "crash"\nclients = [5]\n'
    crash = '[[server.crash]]\nat = "2250 ms"\nback = "3 s"\nstate = "keep"\n'
    more = f'{crash}\n[[churn]]\nat = "2250 ms"\nevent = "leave"\nclients = [1, 2]\n'
    options = ["--set", "run.duration=4 s", "--set", "run.evaluate_every=1 s", "--out", tmp_path / "runs"]
    text += "\n[server]\n"
    parent = done("run", write(tmp_path, text), *options, "--checkpoint-at", "2 s")
    added = write(tmp_path, more, "more.toml")
    fork = done("fork", parent, "--at", "2 s", "--from-toml", added)
    require_same(done("run", write(tmp_path, f"{text}\n{more}"), *options), fork)
    ties = [RunDirectory.load(path).scan("events").filter(pl.col("time") <= 2) for path in (parent, fork)]
    assert ties[0].collect().equals(ties[1].collect())


def test_a_setting_that_is_read_once_cannot_change(tmp_path: Path) -> None:
    change = '[[change]]\nat = "600 ms"\nprotocol = { domain = "simplex" }\n'
    result = coterie("check", write(tmp_path, f"{BUSY}\n{change}"))
    assert result.exit_code == 2
    problem = "cannot change during a run; settings of this protocol that can: local_steps, rho, gamma"
    assert f'change.0.protocol.domain = "simplex": {problem}' in result.stderr


@pytest.mark.parametrize(
    ("at", "duration", "problem"),
    [
        ("2 min", "3 min", " ended at 1.5 s, before 120 s; use an earlier time"),
        ("1500 ms", None, "run.duration: the fork would end at 1.5 s, but starts at 1.5 s"),
        ("1 s", "900 ms", "run.duration: the fork would end at 0.9 s, but starts at 1 s"),
    ],
)
def test_a_fork_has_a_past_and_a_future(parent: Path, at: str, duration: str | None, problem: str) -> None:
    changes = [] if duration is None else ["--set", f"run.duration={duration}"]
    result = coterie("fork", parent, "--at", at, *changes, *QUIET)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_what_a_fork_says_is_true_of_a_fork(parent: Path) -> None:
    """What --set can change is named, and no option that it has not."""
    result = coterie("fork", parent, "--at", "600 ms", "--set", "network.link=datagram", *QUIET)
    assert "--set can change: network.latency, " in result.stderr
    assert "training.learning_rate, protocol.local_steps, protocol.rho, protocol.gamma" in result.stderr
    changes = ["--at", "1 s", "--set", "run.duration=1200 ms"]
    first, second = (coterie("fork", parent, *changes, *QUIET) for _ in range(2))
    assert first.exit_code == second.exit_code == 0
    assert "exists and is kept" in second.stderr and "--overwrite" not in second.stderr


# --- clients that come and go as a table says ---------------------------------------------------------------

COME_AND_GO = f"""\
{QUADRATIC.replace('name = "local"', 'name = "gossip"')}
[[churn_process]]
kind = "table"
file = "up.csv"
clients = [0, 1]
state = "stale"
backup_every = "1 s"
"""
UP = "client,start_s,end_s\n0,0,2\n0,3,5.5\n0,7,8\n1,1,4.5\n1,6,50\n"


def test_who_comes_and_goes_by_a_table_does_so_in_what_goes_on_and_in_forks(tmp_path: Path) -> None:
    write(tmp_path, UP, "up.csv")
    shorter = write(tmp_path, COME_AND_GO.replace("10 s", "5 s"))
    first = done("run", shorter, "--out", tmp_path / "short", "--checkpoint-at", "3 s")
    file = write(tmp_path, COME_AND_GO)
    whole = done("run", file, "--out", tmp_path / "whole")
    require_same(done("resume", first, "--until", "10 s"), whole)
    later = write(tmp_path, '[[churn]]\nat = "7 s"\nevent = "crash"\nclients = [3, 4]\n', "more.toml")
    fork = done("fork", whole, "--at", "5 s", "--from-toml", later)
    full = write(tmp_path, f"{COME_AND_GO}\n{later.read_text()}")
    require_same(done("run", full, "--out", tmp_path / "full"), fork)


def test_a_table_that_was_changed_is_another_scenario(tmp_path: Path) -> None:
    file = write(tmp_path, COME_AND_GO)
    write(tmp_path, UP, "up.csv")
    first = done("run", file, "--out", tmp_path, "--set", "run.duration=5 s")
    write(tmp_path, UP.replace("1,6,50", "1,6,9"), "up.csv")
    refused = coterie("resume", first, "--until", "10 s", *QUIET)
    assert refused.exit_code == 2 and "the content of up.csv was " in refused.output
    assert done("run", file, "--out", tmp_path, "--set", "run.duration=5 s").name != first.name
