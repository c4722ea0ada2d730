"""A fork has its parent's past and another future: it is the full run of the changed scenario."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from sim.results.store import RunDirectory
from tests.resume.same import require_same
from tests.resume.test_resume import BUSY, SHORTLY, coterie
from tests.simulation.worlds import write

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
    "training.learning_rate": "0.02",
}
CHANGE = """\
[[change]]
at = "600 ms"
network = { loss = 0.3, latency = "80 ms", uplink = "1 Mbit/s" }
training = { learning_rate = 0.02 }
"""


def fork_is_full_run(folder: Path, parent: Path, changes: str, *options: str, stated: str = "") -> Path:
    more = write(folder, changes, "more.toml")
    fork = done("fork", parent, "--at", "600 ms", "--from-toml", more, *options)
    assert RunDirectory.load(fork).summary()["fork"] == {"of": parent.name, "at": 0.6}
    whole = done("run", write(folder, f"{BUSY}\n{changes}{stated}"), "--out", folder / "runs", *OPTIONS)
    require_same(whole, fork)
    return whole


def test_a_fork_with_other_events_is_the_full_run_with_them(tmp_path: Path, parent: Path) -> None:
    fork_is_full_run(tmp_path, parent, CRASHES + WEATHER)


def test_a_fork_with_other_settings_is_the_full_run_with_changes(tmp_path: Path, parent: Path) -> None:
    options = [word for each in SETTINGS.items() for word in ("--set", "=".join(each))]
    whole = fork_is_full_run(tmp_path, parent, "", *options, stated=CHANGE)
    runs = [RunDirectory.load(path) for path in (parent, whole)]
    events = [run.scan("events").filter(pl.col("time") <= 0.6).collect() for run in runs]
    assert events[0].equals(events[1])
    assert runs[0].summary()["trace_hash"] != runs[1].summary()["trace_hash"]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [CRASHES, *[f"{part}\n" for part in WEATHER.split("\n\n")]])
def test_a_fork_with_one_kind_of_event_is_the_full_run(tmp_path: Path, parent: Path, changes: str) -> None:
    fork_is_full_run(tmp_path, parent, changes)


@pytest.mark.slow
@pytest.mark.parametrize("key", SETTINGS)
def test_a_fork_with_one_other_setting_is_the_full_run(tmp_path: Path, parent: Path, key: str) -> None:
    section, _, name = key.partition(".")
    stated = f'[[change]]\nat = "600 ms"\n[change.{section}]\n{name} = '
    value = SETTINGS[key]
    stated += value if value.startswith("0") else f'"{value}"'
    fork_is_full_run(tmp_path, parent, "", "--set", f"{key}={value}", stated=f"{stated}\n")


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
    assert (
        "change.0.churn: none of its clients leaves or crashes after 0.6 s and until 10.6 s" in result.stderr
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("churn.0.at=400 ms", "churn.0.at: changes what is at or before --at (0.6 s); must be after it"),
        ("churn.1.at=600 ms", "churn.1.at: changes what is at or before --at (0.6 s); must be after it"),
        ("network.link=datagram", "network.link: cannot be another one from a moment on; what can"),
        ("protocol.local_steps=3", "protocol.local_steps: cannot be another one from a moment on"),
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
    assert "cannot go on from 0.6 s: " in result.stderr
