"""What killed processes leave of a run: which of it the run continues from, and what is cleared away."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from sim.cli import resume_commands
from sim.results.store.output_dir import CHECKPOINT, HIDDEN, MARK, READS
from sim.results.store.run_directory import RunDirectory
from sim.run.resume import checkpoint
from sim.run.resume.resuming import ResumableRun
from tests.results.synthetic import as_if_written
from tests.resume.same import checkpoint_in, require_same
from tests.resume.test_resume import coterie, interrupted, went_on
from tests.simulation.worlds import QUADRATIC, run

SHORT = ["run.duration=4 s", "run.evaluate_every=1 s"]
KEPT = ("scenario.toml", "provenance.json", READS, "parent.parquet")


def left(results: Path, digits: str, *, checkpoint: bool = True) -> Path:
    """The hidden folder of a process that was killed instead of having written these results."""
    hidden = results.with_name(f".{results.name}.{digits}")
    results.rename(hidden)
    (hidden / MARK).touch()
    for file in hidden.iterdir():
        if file.is_file() and not (file.name in (MARK, *KEPT) or (checkpoint and file.suffix == ".pt")):
            file.unlink()
    return hidden


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = tmp_path / "whole"
    folder.mkdir()
    path = run(folder, QUADRATIC, *SHORT).directory
    assert path is not None
    return path


@pytest.mark.parametrize("command", ["resume", "explain"])
def test_a_run_goes_on_that_was_killed_while_it_wrote_its_results(
    tmp_path: Path, whole: Path, command: str
) -> None:
    place = interrupted(tmp_path, QUADRATIC, 2.0, *SHORT)
    summary = (place / "summary.json").read_bytes()
    (left(place, "53dd4cc9") / "summary.json").write_bytes(summary)
    options = ["--device", "cpu"] if command == "resume" else ["--at", "1 s", "--client", 0]
    result = coterie(command, place, *options)
    assert result.exit_code == 0, result.output
    if command == "resume":
        require_same(whole, place)


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
    earlier = ResumableRun.find(place)
    assert earlier.path == far and earlier.time_s >= 3
    assert earlier.attempts == (far, near, early)
    fork = ResumableRun.find(place, 2.0)
    assert fork.path == near and 1 <= fork.time_s <= 2


def test_results_that_were_cut_short_go_on_from_what_a_killed_resume_left(
    tmp_path: Path, whole: Path
) -> None:
    far = left(interrupted(tmp_path, QUADRATIC, 3.0, *SHORT), "00000001")
    place = interrupted(tmp_path, QUADRATIC, 1.0, *SHORT)
    assert ResumableRun.find(place).path == far
    assert ResumableRun.find(place, 2.0).path == place  # as they are, to fork
    assert went_on(place) == place
    require_same(whole, place)
    assert [path for path in tmp_path.iterdir() if path.name.startswith(("world-", "."))] == [place]


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


@pytest.mark.long
def test_a_killed_rerun_is_found_by_the_name_that_it_was_given(tmp_path: Path, whole: Path) -> None:
    place = interrupted(tmp_path, QUADRATIC, 2.0, *SHORT)
    left(place, "53dd4cc9")
    shutil.copytree(whole, place)
    second = place.with_name(f"{place.name}-2")
    assert went_on(second) == second
    require_same(place, second)
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert RunDirectory.load(place).summary() == RunDirectory.load(whole).summary()


def test_a_fork_that_goes_on_is_a_fork_still(tmp_path: Path, whole: Path) -> None:
    """Cut short, killed, or prolonged: it says of what, and draws both futures."""
    at = [
        "--at",
        "2 s",
        "--set",
        "network.loss=0.5",
        "--set",
        "run.duration=6 s",
        "--quiet",
        "--device",
        "cpu",
    ]
    result = coterie("fork", whole, *at)
    assert result.exit_code == 0, result.output
    [fork] = [path for path in whole.parent.iterdir() if path.is_dir() and path != whole]
    told, parent = RunDirectory.load(fork).summary()["fork"], pl.read_parquet(fork / "parent.parquet")
    assert told == {"of": whole.name, "at": 2.0} and len(parent) > 0
    longer = went_on(fork, "--until", "7 s")
    assert longer != fork
    left(fork, "53dd4cc9", checkpoint=False)
    for path in (longer, went_on(fork)):
        assert RunDirectory.load(path).summary()["fork"] == told
        assert pl.read_parquet(path / "parent.parquet").equals(parent)


MINE = """\
from protocols.decentralized.gossip import Gossip

class Mine(Gossip):
    pass
"""


def test_what_made_a_run_is_compared_without_a_checkpoint(tmp_path: Path) -> None:
    """It was known from the start, and is refused for a run that starts again and for a fork."""
    (tmp_path / "mine.py").write_text(MINE)
    path = run(tmp_path, QUADRATIC, *SHORT, "protocol.name=mine.py:Mine").directory
    assert path is not None
    (path / CHECKPOINT).unlink()
    [copy] = path.glob("protocol-*/mine.py")
    copy.write_text(MINE.replace("pass", "bound = 1"))
    quiet = ["--quiet", "--device", "cpu"]
    fork = ["fork", path, "--at", "2 s", "--set", "network.loss=0.5", *quiet]

    explained = coterie("explain", path, "--at", "1 s", "--client", "0")
    assert explained.exit_code == 0, explained.output
    assert f"this replay may differ from the run in {path}: " in explained.stderr
    result = coterie(*fork)
    assert result.exit_code == 2
    assert f"{path} cannot continue exactly: the user's code was" in result.stderr
    left(path, "53dd4cc9")
    explained = coterie("explain", path, "--at", "1 s", "--client", "0")
    assert explained.exit_code == 0, explained.output
    result = coterie("resume", path, *quiet)
    assert result.exit_code == 2
    assert "cannot continue exactly: the user's code was" in result.stderr
    result = coterie("resume", path, "--anyway", *quiet)
    assert result.exit_code == 0 and "no longer exact: the user's code was" in result.stderr
    [path] = [each.parent for each in tmp_path.glob("runs/world-*/summary.json")]
    said = json.loads((path / "provenance.json").read_text())
    del said["made_by"]  # as it was before it was kept
    (path / "provenance.json").write_text(json.dumps(said))
    as_if_written(path)
    (path / CHECKPOINT).unlink()
    result = coterie("fork", path, *fork[2:])
    assert result.exit_code == 2 and "the code and libraries of the run are unknown" in result.stderr


def test_what_was_left_stays_until_the_results_outlive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(checkpoint, "sync", synced.append)
    place = interrupted(tmp_path, QUADRATIC, 2.0, *SHORT)
    assert len(synced) == 1 and HIDDEN.fullmatch(synced[0].name)  # once, with its first checkpoint
    hidden = left(place, "53dd4cc9")

    def fails(folder: Path) -> None:
        assert folder == place
        raise OSError

    monkeypatch.setattr(resume_commands, "sync", fails)
    assert went_on(place) == place
    assert hidden.is_dir()


def test_the_time_that_a_run_took_is_that_of_all_its_processes(tmp_path: Path) -> None:
    place = interrupted(tmp_path, QUADRATIC, 2.0, *SHORT)
    at = checkpoint_in(place)
    replace(at, wall_s=1000.0).write(place / CHECKPOINT)
    assert 1000 < RunDirectory.load(went_on(place)).summary()["wall_seconds"] < 1500


def test_a_run_that_ended_by_its_iterations_is_not_prolonged(tmp_path: Path) -> None:
    path = run(tmp_path, QUADRATIC, *SHORT, "run.iterations=5").directory
    for words in (["--until", "8 s"], []):
        result = coterie("resume", path, *words, "--quiet", "--device", "cpu")
        assert result.exit_code == 2
        assert "because of iterations" in result.stderr and "--until extends only" in result.stderr
