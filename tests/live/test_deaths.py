"""Whoever dies in a live run: what was told until then is in the results, and every message has one fate."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.forkserver import _forkserver  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from sim.live.running import LiveOptions, run_live
from sim.results.store.run_directory import RunDirectory
from sim.run.interrupts import Interrupted
from sim.run.options import RunOptions
from sim.scenario.scenario import load_scenario
from tests.live.watching import hidden, told

SMALL = ["clients.count=6", "clients.topology.degree=2", "run.evaluate_every=2 s", "run.compare_alone=false"]
LONG = "run.duration=60 s"
"""Longer than any of these runs lasts: nothing here hangs on when something happens."""
PATIENCE_S = 100.0


def has_delivered(folder: Path, number: int) -> bool:
    """Whether each of two processes has told that it delivered so many messages."""
    counts = [Counter(event[1] for event in told(folder, f"process-{each}")) for each in range(2)]
    return all(count["delivered"] >= number for count in counts)


def fates_of(directory: Path) -> dict[str, int]:
    """How many messages met each fate, by counting; each was sent once, and ended once at most."""
    rows = RunDirectory.load(directory).scan("events").filter(pl.col("message").is_not_null()).collect()
    sent, ended = (
        rows.filter(found)["message"] for found in (pl.col("event") == "sent", pl.col("event") != "sent")
    )
    assert sent.n_unique() == sent.len() and ended.n_unique() == ended.len()
    assert set(ended) <= set(sent)
    counts = dict.fromkeys(("sent", "delivered", "lost", "dropped"), 0)
    counts |= dict(rows["event"].value_counts().iter_rows())
    return counts | {"in_flight": len(set(sent) - set(ended))}


def require_all_told(directory: Path, events: list[tuple[Any, ...]]) -> None:
    """These events are in the results; what became of a message may be known better by another process."""
    rows = RunDirectory.load(directory).scan("events").collect()
    kept = Counter(rows.select("time", "event", "actor", "peer", "type", "bytes").iter_rows())
    wanted = Counter(tuple(event[:6]) for event in events if event[1] not in ("lost", "dropped"))
    assert events and not wanted - kept
    summary = RunDirectory.load(directory).summary()
    fates = fates_of(directory)
    assert fates == {name: summary["messages"][name] for name in fates}
    assert fates["sent"] == sum(fates.values()) - fates["sent"]
    assert fates["delivered"] > 0
    assert (directory / "report.html").is_file()
    assert not list(directory.glob("told-*"))


def kill_worker(number: int) -> None:
    workers = sorted(each.pid for each in multiprocessing.active_children() if each.pid is not None)
    os.kill(workers[number], signal.SIGKILL)


def kill_all() -> None:
    for number in range(2):
        kill_worker(number)


def kill_forkserver_and_end() -> None:
    assert _forkserver._forkserver_pid is not None
    os.kill(_forkserver._forkserver_pid, signal.SIGKILL)
    raise Interrupted(signal.SIGINT)


def interrupt() -> None:
    raise Interrupted(signal.SIGTERM)


DEATHS: dict[str, tuple[Callable[[], None], str, int | None]] = {
    "all processes": (kill_all, "process-0 ended with code -9", None),
    "a forkserver": (kill_forkserver_and_end, "", signal.SIGINT),
    "an interruption": (interrupt, "", signal.SIGTERM),
}


@pytest.mark.long
@pytest.mark.parametrize("who", DEATHS)
def test_what_was_told_is_kept_whoever_ends(tmp_path: Path, who: str) -> None:
    action, why, number = DEATHS[who]
    events: list[tuple[Any, ...]] = []

    def progress(now_s: float) -> None:
        if not events and has_delivered(folder := hidden(tmp_path), 3):
            events.extend(told(folder, "process-0") + told(folder, "process-1"))
            action()

    scenario, live = load_scenario("gossip", [*SMALL, LONG]), LiveOptions(processes=2, on_progress=progress)
    result = run_live(scenario, RunOptions(out=tmp_path), live)
    assert result.directory is not None and not result.unwritten
    require_all_told(result.directory, events)
    summary = result.summary
    assert summary["finished"] is False
    assert why in summary["ended_by"] if why else "ended_by" not in summary
    assert result.signal == number and summary["interrupted"] is (number is not None)
    assert summary["virtual_seconds"] < summary["planned_seconds"]
    if number is not None:  # all had the time to measure
        assert summary["accuracy"]["clients"] == 6
        assert summary["clients"]["alive"] == 6


@pytest.mark.long
def test_of_one_that_dies_the_others_go_on(tmp_path: Path) -> None:
    """Its clients' events are kept, and they are down; then the run is ended early."""
    events: list[tuple[Any, ...]] = []
    end_at: list[int] = []

    def progress(now_s: float) -> None:
        folder = hidden(tmp_path)
        if not events and has_delivered(folder, 3):
            kill_worker(1)
            events.extend(told(folder, "process-1"))
            end_at.append(len(told(folder, "process-0")) + 20)
        elif end_at and len(told(folder, "process-0")) >= end_at[0]:
            raise Interrupted(signal.SIGINT)

    scenario, live = load_scenario("gossip", [*SMALL, LONG]), LiveOptions(processes=2, on_progress=progress)
    result = run_live(scenario, RunOptions(out=tmp_path), live)
    assert result.directory is not None
    require_all_told(result.directory, events)
    summary = result.summary
    assert "process-1 ended with code -9" in summary["ended_by"]
    assert summary["clients"]["alive"] == 3 and summary["clients"]["crashed"] == 3


COMMAND = [sys.executable, "-m", "sim", "live", "gossip", "--processes", "2", "--quiet"]


@pytest.mark.long
def test_what_was_told_outlives_the_coordinator(tmp_path: Path) -> None:
    """Its processes tell all they have and end; `resume` makes results of it."""
    options = [each for key in (*SMALL, LONG) for each in ("--set", key)]
    command = subprocess.Popen([*COMMAND, "--out", str(tmp_path), *options], stderr=subprocess.PIPE)
    until_s = time.monotonic() + PATIENCE_S
    while not (list(tmp_path.glob(".*")) and has_delivered(hidden(tmp_path), 3)):
        assert command.poll() is None, command.stderr and command.stderr.read()
        assert time.monotonic() < until_s
        time.sleep(0.05)
    folder = hidden(tmp_path)
    events = told(folder, "process-0") + told(folder, "process-1")
    command.kill()
    command.communicate()
    target = tmp_path / folder.name[1:].rpartition(".")[0]
    from sim.cli.commands import app

    found = CliRunner().invoke(app, ["resume", str(target), "--until", "2 min"])
    assert found.exit_code == 2 and "a live run cannot continue" in found.output
    found = CliRunner().invoke(app, ["resume", str(target)])
    assert found.exit_code == 0, found.output
    require_all_told(target, events)
    assert not list(tmp_path.glob(".*"))
    summary = json.loads((target / "summary.json").read_text())
    assert summary["finished"] is False and "the coordinator was killed" in summary["ended_by"]
    assert summary["accuracy"]["clients"] == 6  # measured by the processes that it left
