"""Sweeps: what is run, what is kept, and what a failure costs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sim.results.store.run_directory import RunDirectory
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.scenario.scenario import load_scenario
from sim.studies.cells import Plan, plan
from sim.studies.index import INDEX
from sim.studies.sweep import (
    SweepProgress,
    SweepResult,
    _groups,
    default_jobs,
    process_executor,
    run_sweep,
)
from sim.studies.worker import CellOptions, CellResult, CellTask
from tests.resume.same import require_same
from tests.simulation.worlds import QUADRATIC as SIMULATED
from tests.simulation.worlds import write
from tests.studies.conftest import here
from tests.studies.worlds import STUDY, study


def cells_of(directory: Path) -> list[dict]:
    return json.loads((directory / INDEX).read_text())["cells"]


def hashes(directory: Path) -> list[str]:
    """The trace hashes of a sweep's cells, in order."""
    out = directory.parent
    return [
        RunDirectory.load(out / cell["directory"]).summary()["trace_hash"] for cell in cells_of(directory)
    ]


def counting(ran_too: list[str]) -> Callable:
    def execute(tasks: list[CellTask], ran: Callable[[CellTask, CellResult], None], look: Callable) -> None:
        ran_too.extend(task.cell.key for task in tasks)
        here(tasks, ran, look)

    return execute


def test_each_cell_is_the_single_run_of_its_scenario(small: tuple[Plan, SweepResult], tmp_path: Path) -> None:
    planned, result = small
    assert result.errors == {} and (result.cells, result.finished_before) == (8, 0)
    for number in (0, 7):
        cell = planned.cells[number]
        alone = run_scenario(load_scenario(planned.file, cell.overrides, cell.seed), RunOptions(out=tmp_path))
        assert alone.summary["trace_hash"] == hashes(result.directory)[number]
    assert not list(result.directory.parent.glob("*/report.html"))


def test_runs_that_compute_together_are_those_of_the_sweep(
    small: tuple[Plan, SweepResult], tmp_path: Path
) -> None:
    planned, result = small
    found = run_sweep(planned, out=tmp_path, execute=process_executor(1, together=2))
    assert found.errors == {} and hashes(found.directory) == hashes(result.directory)
    assert len(list(tmp_path.glob("*/cell.json"))) == 8


def test_only_runs_that_differ_in_their_seeds_compute_together(small: tuple[Plan, SweepResult]) -> None:
    cells, how = list(small[0].cells), CellOptions()
    tasks = [CellTask(small[0].file, cell, Path("runs"), how) for cell in cells]
    groups = [[task.cell for task in group] for group in _groups(tasks, 8)]
    assert [len(group) for group in groups] == [2, 2, 2, 2]
    assert all(len({(cell.overrides, cell.unset) for cell in group}) == 1 for group in groups)
    forks = [replace(task, parent="parent") for task in tasks]
    assert [len(group) for group in _groups(forks, 8)] == [1] * 8
    assert [len(group) for group in _groups(tasks, 1)] == [1] * 8


@pytest.mark.long
def test_values_that_make_no_difference_are_told(tmp_path: Path) -> None:
    """Clients that send nothing lose nothing; with gossip the same values do make one."""
    file = write(tmp_path, SIMULATED)

    def told(*overrides: str) -> tuple[str, ...]:
        axes = [*overrides, "network.loss=0,0.5,0.9", "run.evaluate_every=5 s,10 s"]
        return run_sweep(plan(file, axes, seeds=2), out=tmp_path / "runs", execute=here).without_effect

    assert told() == ("network.loss = 0, 0.5, 0.9: the same runs",)
    assert told("protocol.name=gossip", "protocol.period=1 s") == ()


FORKS = """\
forks = true

[[sweep.case]]
axis = "future"
name = "as it was"

[[sweep.case]]
axis = "future"
name = "nobody goes"
set = ['change=[{at="1900 ms",churn={stay="200 ms"}}]']

[[sweep.case]]
axis = "future"
name = "all are slow"
set = ['change=[{at="3 s",network={latency="500 ms"}}]', "run.duration=3500 ms"]

[[sweep.case]]
axis = "future"
name = "another past"
set = ["network.latency=30 ms"]
"""
LEAVES = """
[[churn]]
at = "2 s"
event = "crash"
clients = [1, 2]

"""


@pytest.mark.long
def test_runs_that_share_a_past_compute_it_once(tmp_path: Path) -> None:
    base, _ = STUDY.replace('"local"', '"gossip"').split("[sweep]")
    planned = plan(study(tmp_path, f"{base}{LEAVES}[sweep]\nseeds = 2\n{FORKS}"))
    parents = [cell.key for cell in planned.cells[:2]]
    assert [cell.parent for cell in planned.cells] == [None, None, *parents, *parents, None, None]
    assert [cell.fork_s for cell in planned.cells[2:6]] == [1.9, 1.9, 3.0, 3.0]
    result = run_sweep(planned, out=tmp_path / "runs", execute=here)
    assert result.errors == {}
    for number in (2, 5):
        cell, there = (
            planned.cells[number],
            tmp_path / "runs" / cells_of(result.directory)[number]["directory"],
        )
        whole = run_scenario(
            load_scenario(planned.file, cell.overrides, cell.seed), RunOptions(out=tmp_path / "whole")
        )
        parent = cells_of(result.directory)[number % 2]["directory"]
        assert RunDirectory.load(there).summary()["fork"] == {"of": parent, "at": cell.fork_s}
        assert whole.directory is not None
        require_same(whole.directory, there, ends=False)
    assert not list((tmp_path / "runs").glob("*/*.pt"))
    run_sweep(planned, out=tmp_path / "kept", execute=here, how=CellOptions(checkpoints=True))
    kept = sorted(path.name for path in (tmp_path / "kept").glob("*/*.pt"))
    assert kept == sorted(["checkpoint-1.9.pt", "checkpoint-3.pt"] * 2 + ["checkpoint.pt"] * 8)


def test_what_is_done_is_not_done_again(small: tuple[Plan, SweepResult], tmp_path: Path) -> None:
    planned, result = small
    again: list[str] = []
    second = run_sweep(planned, out=result.directory.parent, execute=counting(again))
    assert again == [] and second.finished_before == 8
    # Another seed, and another value: only what is new is run.
    more = plan(planned.file, ["network.loss=0,0.3"], seeds=(3,))
    third = run_sweep(more, out=result.directory.parent, execute=counting(again))
    assert third.finished_before == 2 and len(again) == 2


def test_results_of_another_version_or_of_a_failed_run_are_none(tmp_path: Path) -> None:
    planned = plan(study(tmp_path), ["network.loss=0"], seeds=1)
    result = run_sweep(planned, out=tmp_path / "runs", execute=here)
    first, second = sorted((tmp_path / "runs").glob("*/cell.json"))
    first.write_text(json.dumps(json.loads(first.read_text()) | {"coterie": "0"}))
    mark = json.loads(second.read_text())
    second.write_text(json.dumps(mark | {"finished": False}))
    again: list[str] = []
    assert run_sweep(planned, out=tmp_path / "runs", execute=counting(again)).finished_before == 0
    assert len(again) == 2
    assert len(list((tmp_path / "runs").glob("study-[0-9]*"))) == 2  # in the place of the others
    assert hashes(result.directory)


FAILING = '''
import os

from protocols import Client


class Failing(Client):
    """Fails where it is told to."""

    class Settings(Client.Settings):
        fails: bool = False

    async def step(self):
        await self.sleep(0.5)
        if self.name == "client-1" and self.settings.fails:
            raise RuntimeError("no more")
'''


def failing(folder: Path, code: str = FAILING, fails: str = "[false, true]") -> Path:
    """A study of two runs, of which one fails."""
    (folder / "failing.py").write_text(code)
    text = STUDY[: STUDY.index("[sweep]")].replace('"local"', '"failing.py:Failing"')
    return study(folder, f"{text}\n[sweep.grid]\nprotocol.fails = {fails}\n")


def test_a_cell_that_fails_fails_alone_and_is_tried_again(tmp_path: Path) -> None:
    planned = plan(failing(tmp_path))
    result = run_sweep(planned, out=tmp_path / "runs", execute=here)
    [(cell, error)] = result.errors.items()
    assert cell == "protocol.fails = True, seed 3" and "RuntimeError: no more" in error
    assert [cell["state"] for cell in cells_of(result.directory)] == ["done", "failed"]
    again: list[str] = []
    run_sweep(planned, out=tmp_path / "runs", execute=counting(again))
    assert again == [planned.cells[1].key]
    # Code that was mended is other code.
    mended = plan(failing(tmp_path, FAILING.replace("client-1", "nobody")))
    assert {cell.key for cell in mended.cells}.isdisjoint(cell.key for cell in planned.cells)


def test_a_scenario_that_changes_meanwhile_is_not_mixed_with_what_it_was(tmp_path: Path) -> None:
    file = study(tmp_path)
    planned = plan(file, ["network.loss=0"], seeds=1)
    study(tmp_path, STUDY.replace("dimension = 3", "dimension = 4"))
    result = run_sweep(planned, out=tmp_path / "runs", execute=here)
    assert len(result.errors) == 2
    assert all("changed during the sweep" in error for error in result.errors.values())


@pytest.mark.long
def test_progress_counts_what_is_left(tmp_path: Path) -> None:
    planned = plan(study(tmp_path), seeds=1)
    run_sweep(plan(study(tmp_path), ["network.loss=0"], seeds=1), out=tmp_path / "runs", execute=here)
    seen: list[SweepProgress] = []
    run_sweep(planned, out=tmp_path / "runs", execute=here, show=seen.append)
    assert [(each.finished_before, each.done, each.share) for each in seen] == [(2, 1, 0.5), (2, 2, 1.0)]


# --- processes ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_processes_beside_each_other_give_the_same_traces(
    small: tuple[Plan, SweepResult], tmp_path: Path
) -> None:
    planned, result = small
    other = run_sweep(planned, out=tmp_path, execute=process_executor(2))
    assert other.errors == {} and hashes(other.directory) == hashes(result.directory)


@pytest.mark.slow
def test_a_process_that_dies_costs_its_cell_and_nothing_else(tmp_path: Path) -> None:
    file = failing(tmp_path, FAILING.replace('raise RuntimeError("no more")', "os._exit(9)"), "[true, false]")
    result = run_sweep(plan(file), out=tmp_path / "runs", execute=process_executor(1))
    assert result.errors == {"protocol.fails = True, seed 3": "the worker process ended with exit code 9"}
    assert [cell["state"] for cell in cells_of(result.directory)] == ["failed", "done"]


def command(file: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "sim", "sweep", str(file), "--out", str(out), "--jobs", "1", "--quiet"]


def start(file: Path, out: Path) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command(file, out), env=environment, stderr=subprocess.PIPE, text=True)


def wait_for_cells(out: Path, count: int, process: subprocess.Popen) -> None:
    until = time.monotonic() + 240
    while len(list(out.glob("[!.]*/cell.json"))) < count:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until, "no cell was done in four minutes"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
def test_a_sweep_that_is_killed_goes_on_where_it_was(
    small: tuple[Plan, SweepResult], tmp_path: Path, number: signal.Signals
) -> None:
    """The tables of a sweep that was killed and went on equal those of one that was not."""
    from sim.studies.comparison import Comparison
    from sim.studies.study import load_study
    from sim.studies.tables import write_csv

    planned, whole = small
    process = start(planned.file, tmp_path)
    wait_for_cells(tmp_path, 2, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    if number == signal.SIGTERM:
        assert process.returncode == 128 + number and "repeat the command to resume" in errors
    done = len(list(tmp_path.glob("[!.]*/cell.json")))
    assert 2 <= done < 8
    again: list[str] = []
    result = run_sweep(planned, out=tmp_path, execute=counting(again))
    assert result.finished_before >= done and len(again) == 8 - result.finished_before
    assert hashes(result.directory) == hashes(whole.directory)
    tables = []
    for place, directory in enumerate((result.directory, whole.directory)):
        folder = tmp_path / f"tables-{place}"
        folder.mkdir()
        write_csv(Comparison(load_study([directory]), target=0.5), folder)
        tables.append([(folder / name).read_bytes() for name in ("table.csv", "target.csv", "curves.csv")])
    assert tables[0] == tables[1]


def test_a_gpu_has_one_run_at_a_time(
    small: tuple[Plan, SweepResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two would take its memory from each other."""
    planned, _ = small
    monkeypatch.setattr("sim.studies.sweep.cores", lambda: 16)
    assert default_jobs(planned.threads, "cpu") == 16
    monkeypatch.setattr("sim.run.setup.engine.choose_device", lambda name: torch.device("cuda"))
    assert default_jobs(planned.threads, "auto") == 1 and default_jobs(planned.threads, "cpu") == 16
