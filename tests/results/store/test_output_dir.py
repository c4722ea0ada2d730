"""Where results go: beside those that are there, or in their place; and what dead processes left."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sim.errors import UserError
from sim.results.store import output_dir, run_directory
from sim.results.store.output_dir import MARK
from sim.results.store.run_directory import RunDirectory
from tests.results.synthetic import LEAST

NAME = "demo-3-abc123"


@pytest.fixture
def base(tmp_path) -> Path:
    return tmp_path / "runs"


def create(base, seed=0, **options) -> RunDirectory:
    """A directory whose results are complete, but not in their place."""
    run = RunDirectory.create(base, "demo", 3, "abc123", **options)
    run.write_summary(LEAST | {"seed": seed})
    run.write_report("page")
    return run


def entries(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def seed_of(path) -> int:
    return RunDirectory.load(path).summary()["seed"]


def test_a_rerun_goes_beside_the_earlier_results(base):
    for seed in (1, 2, 3):
        create(base, seed).finalise()
    assert {name: seed_of(base / name) for name in entries(base)} == {NAME: 1, f"{NAME}-2": 2, f"{NAME}-3": 3}


def test_it_says_where_it_will_go(base):
    first = create(base)
    assert first.expected_path == first.target == base / NAME
    assert first.finalise() == base / NAME
    assert create(base).expected_path == base / f"{NAME}-2"


def test_two_runs_at_once_both_stay(base):
    first, second = create(base, 1), create(base, 2)
    assert second.finalise() == base / NAME
    assert first.finalise() == base / f"{NAME}-2"
    assert (seed_of(second.path), seed_of(first.path)) == (2, 1)


def test_results_are_replaced_and_what_others_put_there_stays(base):
    first = create(base, 1)
    first.write_scenario("old")
    first.write_code("protocol-01234567", {"own.py": b"1"})
    first.finalise()
    (base / NAME / "notes.txt").write_text("mine")
    (base / NAME / "figures").mkdir()
    (base / NAME / "figures" / "a.png").write_text("mine, too")
    second = create(base, 2, overwrite=True)
    assert seed_of(base / NAME) == 1, "the old ones stay until the end"
    assert second.finalise(replace=True) == base / NAME
    assert entries(base) == [NAME]
    assert entries(base / NAME) == ["checksums.json", "figures", "notes.txt", "report.html", "summary.json"]
    assert seed_of(base / NAME) == 2
    assert (base / NAME / "figures" / "a.png").read_text() == "mine, too"


def test_folders_of_others_that_are_called_like_ours_stay(base, tmp_path):
    """Within results, within our copies, and beside results; also if somebody has written into a mark."""
    mine = {"notes-20261125/a.txt", "protocol-01234567/a.txt", "protocol-01234567/deep/b.txt"}
    first = create(base, 1)
    first.write_code("protocol-01234567", {"own.py": b"1", "deep/more.py": b"2"})
    first.write_code("model-89abcdef", {"net.py": b"3", "deep/more.py": b"4"})
    first.finalise()
    for name in mine:
        (base / NAME / name).parent.mkdir(exist_ok=True)
        (base / NAME / name).write_text("mine")
    (tmp_path / "outside.txt").write_text("mine")
    with (base / NAME / "protocol-01234567" / MARK).open("a") as mark:
        mark.write(f"\n../../../outside.txt\n{tmp_path}/outside.txt\n")
    beside = base / ".notes-2024-11.20261125"
    beside.mkdir()
    (beside / "trace.pftrace").write_text("mine")
    create(base, 2, overwrite=True).finalise(replace=True)
    kept = {str(file.relative_to(base / NAME)) for file in (base / NAME).rglob("*") if file.is_file()}
    assert kept == mine | {"checksums.json", "report.html", "summary.json"}
    assert seed_of(base / NAME) == 2
    assert (beside / "trace.pftrace").read_text() == (tmp_path / "outside.txt").read_text() == "mine"


@pytest.mark.long
def test_many_replace_one_at_once(base):
    """The results of each are there at its end, and those of the last stay."""
    program = (
        "from pathlib import Path\n"
        "from tests.results.store.test_output_dir import create\n"
        "for seed in range(50):\n"
        f"    create(Path({str(base)!r}), seed, overwrite=True).finalise(replace=True)\n"
    )
    several = [
        subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) for _ in range(4)
    ]
    assert [process.communicate()[1] for process in several] == [""] * 4
    assert entries(base) == [NAME]
    assert seed_of(base / NAME) == 49


def test_results_that_are_replaced_while_they_are_looked_at_are_results(base, monkeypatch):
    create(base, 1).finalise()
    is_results, moments = output_dir.is_results, []

    def replaced(path):
        moments.append(path)
        if len(moments) > 1:
            return is_results(path)
        (base / NAME).rename(base / "old")  # by another process, between two looks at the name
        found = is_results(path)
        create(base, 2).finalise()
        return found

    monkeypatch.setattr(output_dir, "is_results", replaced)
    create(base, 3, overwrite=True).finalise(replace=True)
    assert len(moments) > 1 and seed_of(base / NAME) == 3


def test_a_discarded_run_leaves_nothing_and_a_settled_one_stays(base):
    settled, abandoned = create(base), create(base)
    settled.finalise()
    abandoned.discard()
    settled.discard()
    assert entries(base) == [NAME]


# --- what cannot be written, or not replaced ----------------------------------------------------------------


def test_what_is_no_result_directory_is_never_replaced(base):
    (base / NAME).mkdir(parents=True)
    (base / NAME / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match=rf"{NAME} is not a results folder"):
        create(base, overwrite=True)
    assert create(base).finalise() == base / f"{NAME}-2"
    assert entries(base / NAME) == ["thesis.tex"]


def test_a_link_to_results_is_not_replaced(base, tmp_path):
    create(base, 1).finalise()
    (base / NAME).rename(tmp_path / "elsewhere")
    (base / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        create(base, overwrite=True)
    assert create(base, 2).finalise() == base / f"{NAME}-2"
    # It may become one while the run goes on.
    assert create(base, 3).finalise(replace=True) == base / f"{NAME}-3"
    assert seed_of(base / NAME) == 1


def test_an_impossible_place_is_refused(base):
    base.write_text("a file")
    for impossible in (base, base.with_name("x" * 300)):
        with pytest.raises(UserError, match="cannot write results"):
            create(impossible)


def test_without_room_it_is_refused_and_leaves_nothing(base, monkeypatch):
    monkeypatch.setattr(run_directory.shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000_000))
    with pytest.raises(UserError, match=f"no space for results in {base}"):
        create(base)
    assert entries(base) == []


# --- what dead processes leave ------------------------------------------------------------------------------


def abandon(base, complete: bool) -> str:
    """The name of the hidden folder of a process that was killed."""
    program = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from sim.results.store.manifest import Manifest\n"
        "from tests.results.store.test_output_dir import create\n"
        f"run = create(Path({str(base)!r}), seed=7)\n"
        f"not {complete} or Manifest.of(run.path, ['summary.json']).write()\n"
        "print(run.path.name, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert entries(base) == [done.stdout.strip()]
    return done.stdout.strip()


def test_what_a_killed_run_left_is_cleared_away_by_the_next(base):
    abandon(base, complete=False)
    run = create(base)
    assert entries(base) == [run.path.name]
    run.finalise()
    assert entries(base) == [NAME]


def test_complete_results_of_a_killed_run_get_their_place(base):
    abandon(base, complete=True)
    run = create(base)
    assert entries(base) == sorted([NAME, run.path.name])
    assert seed_of(base / NAME) == 7


def test_the_folder_of_a_living_run_and_other_hidden_things_stay(base, tmp_path):
    living = create(base)
    (base / ".git").mkdir()
    (base / f".{NAME}.01234567.txt").write_text("mine")
    (base / f".{NAME}.01234567").symlink_to(tmp_path)
    there = entries(base)
    create(base).discard()
    assert entries(base) == there
    assert living.finalise() == base / NAME


def test_a_killed_replacement_is_ended_by_the_next_run(base, monkeypatch):
    """Killed after the two folders were swapped, before the old one was cleared away."""
    create(base, 1).finalise()
    (base / NAME / "notes.txt").write_text("mine")
    second = create(base, 2)
    monkeypatch.setattr(output_dir, "_clear_away", lambda folder, place: None)
    second.finalise(replace=True)
    monkeypatch.undo()
    [hidden] = [name for name in entries(base) if name.startswith(".")]
    os.unlink(base / hidden / "checksums.json")  # the first thing that clearing away does
    create(base).discard()
    assert entries(base) == [NAME]
    assert entries(base / NAME) == ["checksums.json", "notes.txt", "report.html", "summary.json"]
    assert seed_of(base / NAME) == 2


def test_checkpoints_are_found_whatever_their_moment(tmp_path):
    names = {"checkpoint.pt", "checkpoint-1e-05.pt", "checkpoint-0.020000001.pt", "checkpoint-1e+16.pt"}
    for name in (*names, ".checkpoint.pt.new", "notes.pt"):
        (tmp_path / name).touch()
    assert {file.name for file in output_dir.checkpoints(tmp_path)} == names


@pytest.mark.parametrize("name", ["checkpoint.pt", "checkpoint-300.pt"])
def test_what_a_killed_run_could_go_on_from_stays(base, name):
    left = base / f".{NAME}.0a1b2c3d"
    left.mkdir(parents=True)
    for each in (MARK, "reads.log", name):
        (left / each).write_text("")
    output_dir.clean_up(base)
    assert entries(left) == [MARK, name, "reads.log"]


@pytest.mark.parametrize("table", ["protocol", "model", "latency", "churn_process"])
def test_copies_of_the_users_code_are_cleared_away(base, table):
    """Else they would be in a folder of their own at the run's place, where no results are."""
    left = base / f".{NAME}.0a1b2c3d"
    copy = left / f"{table}-4c948e1c" / "package"
    copy.mkdir(parents=True)
    (copy / "mine.py").write_text("")
    (copy.parent / MARK).write_text("package/mine.py")
    for name in (MARK, "scenario.toml"):
        (left / name).write_text("")
    output_dir.clean_up(base)
    assert entries(base) == []


def test_what_is_synced_may_get_another_name_meanwhile(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(output_dir.os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    (tmp_path / "run" / "model-4c948e1c").mkdir(parents=True)
    files = [tmp_path / "run" / name for name in ("scenario.toml", "model-4c948e1c/net.py")]
    for file in files:
        file.write_text("")
    (tmp_path / "run" / "gone").symlink_to("nowhere")
    output_dir.sync(tmp_path / "run")
    there = (*files, files[1].parent, tmp_path / "run", tmp_path)
    assert sorted(synced) == sorted(path.stat().st_ino for path in there)
