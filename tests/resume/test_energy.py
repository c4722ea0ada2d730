"""The energy of a run that goes on, or that is forked, is that of the whole run; so is its budget."""

from pathlib import Path

import pytest

from sim.results.store.run_directory import RunDirectory
from sim.run.resume.lineage import lineage_of
from tests.resume.same import require_same
from tests.resume.test_forks import CRASHES, done
from tests.resume.test_resume import BUSY, SHORTLY, interrupted, went_on
from tests.simulation.worlds import run, write

POWER = ('devices.power={busy="8 W", idle="2 W"}', 'network.energy_per_byte="20 uJ/B"')
BUDGET = ("run.budget.energy=7.5 J",)


def test_an_interrupted_run_has_the_energy_and_the_budget_of_the_whole(tmp_path: Path) -> None:
    whole = run(tmp_path, BUSY, *SHORTLY, *POWER, *BUDGET).directory
    assert whole is not None
    summary = RunDirectory.load(whole).summary()
    assert 0.8 < summary["virtual_seconds"] < 1.5, "the budget ends the run"
    path = interrupted(tmp_path, BUSY, 0.6, *SHORTLY, *POWER, *BUDGET)
    require_same(whole, went_on(path))


@pytest.mark.long
def test_a_fork_has_the_energy_of_the_whole(tmp_path: Path) -> None:
    options = [word for each in (*SHORTLY, *POWER, "energy.carbon=400") for word in ("--set", each)]
    file = write(tmp_path, BUSY)
    parent = done("run", file, "--out", tmp_path / "runs", *options, "--checkpoint-at", "600 ms")
    more = write(tmp_path, CRASHES, "more.toml")
    fork = done("fork", parent, "--at", "600 ms", "--from-toml", more)
    whole = done("run", write(tmp_path, f"{BUSY}\n{CRASHES}"), "--out", tmp_path / "runs", *options)
    require_same(whole, fork)


def test_a_replay_ends_with_the_budget_as_the_run_did(tmp_path: Path) -> None:
    """The engine of a lineage is another one, but the budget of energy still stops the training."""
    whole = run(tmp_path, BUSY, *SHORTLY, *POWER, *BUDGET).directory
    assert whole is not None
    lineage = lineage_of(whole)
    assert {row["kind"] for row in lineage.sources.iter_rows(named=True)} >= {"training"}
    assert lineage.sources["time"].max() == RunDirectory.load(whole).summary()["virtual_seconds"]
