"""Runs of all kinds of scenarios are verified, resumed and forked with the same trace."""

import json
from pathlib import Path

import pytest

from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.scenario.scenario import load_scenario
from tests.resume.test_resume import coterie
from tests.simulation.kinds import KINDS


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_runs_of_all_kinds_are_verified_resumed_and_forked(kind: str, tmp_path: Path) -> None:
    file, stated = KINDS[kind](tmp_path)
    scenario = load_scenario(file, [*stated, "run.duration=3 s"])
    whole = run_scenario(scenario, RunOptions(out=tmp_path / "whole")).summary["trace_hash"]

    def trace_of(*words: object) -> str:
        done = coterie(*words, "--quiet", "--device", "cpu")
        assert done.exit_code == 0, done.output
        (report,) = [line for line in done.stdout.splitlines() if line.startswith("report: ")]
        folder = Path(report.removeprefix("report: ")).parent
        return str(json.loads((folder / "summary.json").read_text())["trace_hash"])

    words = [word for change in (*stated, "run.duration=3 s") for word in ("--set", change)]
    assert trace_of("run", file, *words, "--verify", "--out", tmp_path / "again") == whole
    shorter = load_scenario(file, [*stated, "run.duration=2 s"])
    first = run_scenario(shorter, RunOptions(out=tmp_path / "first", checkpoints_s=[0.5]))
    assert trace_of("resume", first.directory, "--until", "3 s") == whole
    forked = trace_of("fork", first.directory, "--at", "500 ms", "--set", "run.duration=3 s")
    assert forked == whole
