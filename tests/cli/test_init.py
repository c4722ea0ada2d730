"""`coterie init`: the files that it writes work at once, and nothing of the user is replaced."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli.commands import app


def _init(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["init", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


def _python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, env=environment
    )


@pytest.mark.long
def test_the_four_files_work_at_once(tmp_path: Path) -> None:
    code, written, _ = _init("mutual_help", "--out", tmp_path)
    names = ["mutual_help.py", "mutual_help.toml", "test_mutual_help.py", "mutual_help.ipynb"]
    assert code == 0 and written.split() == [str(tmp_path / name) for name in names]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    scenario = tmp_path / "mutual_help.toml"
    shorter = scenario.read_text(encoding="utf-8").replace('"1 min"', '"10 s"')
    scenario.write_text(shorter, encoding="utf-8")
    checked = CliRunner().invoke(app, ["check", str(scenario)])
    assert checked.exit_code == 0 and "MutualHelp" in checked.stdout
    tested = _python(tmp_path, "-m", "pytest", "-q", "-p", "no:xdist", "test_mutual_help.py")
    assert tested.returncode == 0 and "2 passed" in tested.stdout, tested.stdout
    notebook = json.loads((tmp_path / "mutual_help.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    ran = _python(tmp_path, "-c", "\n".join([*cells, "print(run.summary['finished'])"]))
    assert ran.returncode == 0 and ran.stdout.endswith("True\n"), ran.stderr
    [results] = (tmp_path / "runs").iterdir()
    assert json.loads((results / "summary.json").read_text(encoding="utf-8"))["warnings"] == []


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    mine = tmp_path / "helper.toml"
    mine.write_text("mine", encoding="utf-8")
    code, written, said = _init("helper", "--out", tmp_path)
    assert (code, written) == (2, "") and f"{mine}: already exists" in said
    assert mine.read_text(encoding="utf-8") == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["helper.toml"]


def test_a_link_without_a_target_is_kept(tmp_path: Path) -> None:
    (tmp_path / "helper.py").symlink_to(tmp_path / "nowhere")
    assert _init("helper", "--out", tmp_path)[0] == 2
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Helper",
        "two words",
        "1st",
        "_mine",
        "class",
        "a/b",
        "../up",
        "héros",
        "test_mine",
        "a" * 101,
        "x\n",
    ],
)
def test_names_that_are_no_modules_are_refused(name: str, tmp_path: Path) -> None:
    code, written, said = _init("--out", tmp_path / "new", "--", name)
    assert (code, written) == (2, "") and "must consist of at most 100 lowercase letters" in said
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["coterie", "torch", "json", "sim"])
def test_names_of_other_modules_are_refused(name: str, tmp_path: Path) -> None:
    code, _, said = _init(name, "--out", tmp_path / "new")
    assert code == 2 and f"{name}: is the name of" in said


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    code, written, said = _init("helper", "--out", tmp_path / "file" / "folder")
    assert (code, written) == (2, "") and str(tmp_path / "file") in said
