"""The command, with real runs behind it: what it does, prints and leaves, and its exit codes."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from sim.cli.commands import app
from sim.results.store.run_directory import RunDirectory
from sim.run import running
from sim.run.save import saving
from tests.simulation.worlds import DIGITS, QUADRATIC, write

pytestmark = pytest.mark.report

BEGIN = """\
import os, signal
from dataclasses import dataclass
from pathlib import Path
from protocols.decentralized.local import Local

@dataclass(frozen=True)
class Word:
    text: str

class Own(Local):
"""
WAITS_FOR_EVER = """
    collected = (Word,)

    async def step(self):
        await super().step()
        await self.collect(Word, self.peers, timeout=None)
"""
FAILS_FOR_NEWCOMERS = """
    def __init__(self, name, context, compute, settings):
        super().__init__(name, context, compute, settings)
        if self.now > 0:
            raise ValueError("too late")
"""
FAILS = """
    async def step(self):
        await super().step()
        raise RuntimeError("not today")
"""
INTERRUPTS = """
    async def step(self):
        await super().step()
        if self.name == "client-3" and self.now == 1:
            for _ in range({times}):
                os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.fixture
def invoke(tmp_path: Path) -> Callable[..., Result]:
    """Run a text; results go to `tmp_path`/runs."""

    def invoked(text: str, *options: str) -> Result:
        file = write(tmp_path, text)
        return CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "runs"), *options])

    return invoked


def own(folder: Path, body: str) -> tuple[str, str]:
    (folder / "own.py").write_text(BEGIN + body)
    return "--set", "protocol.name=own.py:Own"


def number_of(line: str, body: str) -> int:
    """The number of the line in `own`'s file that contains a text."""
    return (BEGIN + body).partition(line)[0].count("\n") + 1


def results(folder: Path) -> RunDirectory:
    [directory] = (folder / "runs").iterdir()
    return RunDirectory.load(directory)


def check_results(folder: Path) -> dict[str, Any]:
    """The summary of the only run, whose directory is complete and whose report can be made anew."""
    run = results(folder)
    names = {path.name for path in run.path.iterdir() if not path.name.startswith("protocol-")}
    assert names - {"checkpoint.pt"} == {  # which runs that failed have none of
        "scenario.toml",
        "provenance.json",
        "metrics.parquet",
        "graph.parquet",
        "events.parquet",
        "intervals.parquet",
        "summary.json",
        "report.html",
        "reads.log",
        "checksums.json",
    }
    page = run.path / "report.html"
    before = page.read_text(encoding="utf-8")
    page.unlink()
    result = CliRunner().invoke(app, ["report", str(run.path)])
    assert (result.exit_code, result.output.strip()) == (0, str(page))
    assert page.read_text(encoding="utf-8") == before
    messages = run.summary()["messages"]
    assert messages["sent"] == sum(messages[fate] for fate in ("delivered", "lost", "dropped", "in_flight"))
    return run.summary()


@pytest.mark.long
def test_a_run_and_its_options(invoke: Callable[..., Result], tmp_path: Path) -> None:
    options = ("--seed", "7", "--set", "clients.count=4", "--set", "run.name=mine", "--device", "cpu")
    result = invoke(QUADRATIC, "--quiet", *options)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    summary = check_results(tmp_path)
    assert (summary["seed"], summary["clients"]["initial"], summary["scenario"]) == (7, 4, "mine")
    assert results(tmp_path).path.name.startswith("mine-7-")
    assert result.stdout.splitlines()[-1] == f"report: {results(tmp_path).path / 'report.html'}"
    assert summary["trace_hash"] in result.stdout


def test_every_client_fails(invoke: Callable[..., Result], tmp_path: Path) -> None:
    result = invoke(QUADRATIC, *own(tmp_path, FAILS))
    assert result.exit_code == 1
    place = f"{tmp_path / 'own.py'}:{number_of('raise RuntimeError', FAILS)}"
    first = f"client-0 and 5 more failed first at 0.125 s in step ({place}): RuntimeError: not today"
    assert result.stderr.replace("\N{NO-BREAK SPACE}", " ").endswith(
        "the run failed: 6 of 6 clients failed: RuntimeError: not today (first: client-0 at 125 ms, "
        f"{place})\n"
    )
    assert f"failed: {first} (stopped for good)\n" in result.stdout
    assert 'raise RuntimeError("not today")' in result.stderr
    assert "task.py" not in result.stderr and "client.py" not in result.stderr  # frames of ours
    summary = check_results(tmp_path)
    assert summary["virtual_seconds"] == 0.125
    assert summary["failures"] == [f"{first} (stopped for good)"]
    assert summary["clients"]["failed"] == 6
    assert summary["clients"]["alive"] == 0


def test_failures_that_differ_are_not_all_shown(invoke: Callable[..., Result], tmp_path: Path) -> None:
    each_its_own = FAILS.replace('"not today"', 'self.name.replace("client", "number")')
    result = invoke(QUADRATIC, *own(tmp_path, each_its_own), "--set", "clients.count=12")
    assert result.stdout.count("failed: client-") == 10
    assert "and 2 more failures, see summary.json" in result.stdout


def test_a_deadlock_names_who_waits_for_what(invoke: Callable[..., Result], tmp_path: Path) -> None:
    result = invoke(QUADRATIC, *own(tmp_path, WAITS_FOR_EVER), "--set", "clients.count=3")
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    lines = result.stderr.splitlines()
    assert lines[-5].endswith(
        "deadlock at 0.125 s of virtual time: no events are left, and these tasks wait forever"
    )
    place = f"{tmp_path / 'own.py'}:{number_of('self.collect', WAITS_FOR_EVER)}"
    assert lines[-4:-1] == [
        f"  client-0: step: iteration 1, {place}: waits for Word from client-1, client-2",
        f"  client-1: step: iteration 1, {place}: waits for Word from client-0, client-2",
        f"  client-2: step: iteration 1, {place}: waits for Word from client-0, client-1",
    ]
    assert lines[-1] == f"the results so far are in {results(tmp_path).path}"
    summary = check_results(tmp_path)
    assert "client-1" in summary["ended_by"]
    assert summary["virtual_seconds"] == 0.125


def test_an_error_half_way_keeps_what_was_measured_until_then(
    invoke: Callable[..., Result], tmp_path: Path
) -> None:
    """A newcomer whose protocol can't be made ends the run as bad input does, but the past is not lost."""
    newcomer = "churn=[{at='2 s', event='join', clients=[1]}]"
    options = ("--quiet", "--set", newcomer, "--set", "run.evaluate_every=1 s")
    result = invoke(QUADRATIC, *own(tmp_path, FAILS_FOR_NEWCOMERS), *options)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    lines = result.stderr.splitlines()
    assert "too late" in lines[0]
    assert lines[-1] == f"the results so far are in {results(tmp_path).path}"
    summary = check_results(tmp_path)
    assert "too late" in summary["ended_by"]
    assert summary["finished"] is False
    assert summary["virtual_seconds"] == 2.0
    assert "Ended early" in (results(tmp_path).path / "report.html").read_text()


@pytest.mark.long
def test_ctrl_c_ends_a_run_between_two_events(invoke: Callable[..., Result], tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    result = invoke(QUADRATIC, *own(tmp_path, INTERRUPTS.format(times=1)), "--quiet")
    assert result.exit_code == 130
    summary = check_results(tmp_path)
    assert (summary["virtual_seconds"], summary["interrupted"]) == (1.0, True)
    assert "interrupted │ after 1 s of" in " ".join(result.stdout.replace("\N{NO-BREAK SPACE}", " ").split())
    # What has been reached until then is evaluated.
    metrics = results(tmp_path).scan("metrics").collect()
    assert metrics.filter(name="distance", time=1.0).height == 6
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_ends_it_at_once(invoke: Callable[..., Result], tmp_path: Path) -> None:
    result = invoke(QUADRATIC, *own(tmp_path, INTERRUPTS.format(times=2)), "--quiet")
    assert result.exit_code == 130
    assert result.stderr == "interrupted before there were results\n"
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.long
def test_ctrl_c_while_everybody_trains_alone_keeps_the_run(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "train_alone", lambda simulation: os.kill(os.getpid(), signal.SIGINT))
    result = invoke(QUADRATIC, "--set", "run.compare_alone=true", "--quiet")
    assert result.exit_code == 130
    summary = check_results(tmp_path)
    assert summary["virtual_seconds"] == 10.0
    assert (summary["interrupted"], summary["better_than_alone"]) == (True, None)


def test_ctrl_c_while_the_results_are_written_does_not_lose_them(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report = saving.write_report

    def interrupted(directory: RunDirectory) -> Path:
        os.kill(os.getpid(), signal.SIGINT)
        return write_report(directory)

    monkeypatch.setattr(saving, "write_report", interrupted)
    result = invoke(QUADRATIC, "--quiet", "--verify")
    assert result.exit_code == 130, result.output
    assert result.stderr == "interrupted; the run had ended, and its results are in that directory\n"
    assert "verif" not in result.output
    summary = check_results(tmp_path)
    assert (summary["interrupted"], summary["finished"]) == (False, True)


def test_what_is_refused_leaves_nothing(invoke: Callable[..., Result], tmp_path: Path) -> None:
    greedy = "data.partition={kind='iid', samples_per_client=1000}"
    result = invoke(DIGITS, "--set", greedy)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert str(tmp_path / "world.toml") in result.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_where_there_is_none(invoke: Callable[..., Result]) -> None:
    result = invoke(QUADRATIC, "--device", "cuda")
    assert result.exit_code == 2
    assert "--device cuda" in result.stderr


def test_a_report_of_no_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 2
    assert f"{tmp_path} is not a results folder" in result.stderr
