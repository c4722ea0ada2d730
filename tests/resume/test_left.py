"""What killed processes leave of a run: which of it the run goes on from, and what is cleared away."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from sim.results.place import CHECKPOINT, READS
from sim.results.store import RunDirectory
from sim.run.resuming import Earlier
from tests.resume.same import require_same
from tests.resume.test_resume import coterie, interrupted, went_on
from tests.simulation.worlds import QUADRATIC, run

SHORT = ["run.duration=4 s", "run.evaluate_every=1 s"]
KEPT = ("scenario.toml", "provenance.json", READS, "parent.parquet")


def left(results: Path, digits: str, *, checkpoint: bool = True) -> Path:
    """The hidden folder of a process that was killed instead of having written these results."""
    hidden = results.with_name(f".{results.name}.{digits}")
    results.rename(hidden)
    for file in hidden.iterdir():
        if file.is_file() and not (file.name in KEPT or (checkpoint and file.suffix == ".pt")):
            file.unlink()
    return hidden


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = tmp_path / "whole"
    folder.mkdir()
    path = run(folder, QUADRATIC, *SHORT).directory
    assert path is not None
    return path


@pytest.mark.parametrize("in_the_walk", [True, False], ids=["before its log", "before its checkpoint"])
def test_a_run_goes_on_whose_resume_was_killed(tmp_path: Path, whole: Path, in_the_walk: bool) -> None:
    place = interrupted(tmp_path, QUADRATIC, 2.0, *SHORT)
    killed = left(place, "53dd4cc9")
    resumed = place.with_name(f".{place.name}.658881ce")
    shutil.copytree(killed, resumed)  # later than the run that it went on with
    (resumed / CHECKPOINT).unlink()
    if in_the_walk:
        (resumed / READS).unlink()
    os.utime(killed, (0, 0))
    result = coterie("resume", place, "--device", "cpu")
    assert result.exit_code == 0, result.output
    require_same(whole, place)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_run_goes_on_from_the_furthest_of_what_was_left(tmp_path: Path) -> None:
    """Whichever of them was written to last, and whatever else an early death left."""
    far = left(interrupted(tmp_path, QUADRATIC, 3.0, *SHORT), "00000001")
    near = left(interrupted(tmp_path, QUADRATIC, 1.0, *SHORT), "00000002")
    place = far.with_name(far.name[1:].rpartition(".")[0])
    early = left(Path(shutil.copytree(far, place)), "00000003", checkpoint=False)
    os.utime(far, (0, 0))
    earlier = Earlier.find(place)
    assert earlier.path == far and earlier.time_s >= 3
    assert earlier.attempts == (far, near, early)
    fork = Earlier.find(place, 2.0)
    assert fork.path == near and 1 <= fork.time_s <= 2


def test_the_results_folder_itself_is_named_by_a_dot(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = interrupted(tmp_path, QUADRATIC, 2.0, *SHORT)
    monkeypatch.chdir(place)
    assert went_on(Path()) == place
    require_same(whole, place)
    monkeypatch.chdir(place)
    fork = coterie("fork", ".", "--at", "2 s", "--set", "network.loss=0.5", "--quiet", "--device", "cpu")
    assert fork.exit_code == 0, fork.output
    assert not [each for each in place.iterdir() if each.is_dir()]


def test_a_killed_rerun_is_found_by_the_name_that_it_was_given(tmp_path: Path, whole: Path) -> None:
    place = interrupted(tmp_path, QUADRATIC, 2.0, *SHORT)
    left(place, "53dd4cc9")
    shutil.copytree(whole, place)
    second = place.with_name(f"{place.name}-2")
    assert went_on(second) == second
    require_same(place, second)
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert RunDirectory.load(place).summary() == RunDirectory.load(whole).summary()
