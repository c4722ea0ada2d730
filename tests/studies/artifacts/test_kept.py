"""The copy of a study in a sweep's folder: the sweep runs again from it, wherever the folder is."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.studies.cells import plan
from sim.studies.sweep import run_sweep
from tests.simulation.worlds import DIGITS
from tests.studies.conftest import here
from tests.studies.worlds import STUDY, study

METHOD = """\
from protocols.framework.client import Client
from helper import PERIOD


class Mine(Client):
    async def step(self):
        update = await self.train(steps=1)
        self.params = self.params + update
        await self.sleep(PERIOD)
"""
MINE = STUDY.replace(
    'set = ["protocol.name=gossip", "protocol.period=500 ms"]', 'set = ["protocol.name=mine.py:Mine"]'
)
MATRIX = "0,20,20,20\n20,0,20,20\n20,20,0,20\n20,20,20,0\n"  # ms
BESIDE = """\
# Which loss?
[sweep]
scenario = "../base/study.toml"
seeds = [4, 5]
grid.network.loss = [0, 0.2]
"""


def with_code(folder: Path) -> Path:
    (folder / "mine.py").write_text(METHOD, encoding="utf-8")
    (folder / "helper.py").write_text("PERIOD = 0.25\n", encoding="utf-8")
    return study(folder, MINE)


def with_method(folder: Path) -> Path:
    """Also the file's protocol is own code, in another folder."""
    (folder / "code").mkdir()
    with_code(folder / "code")
    return study(folder, MINE.replace('"local"', '"code/mine.py:Mine"').replace("=mine.py", "=code/mine.py"))


def with_data(folder: Path) -> Path:
    (folder / "delays.csv").write_text(MATRIX, encoding="utf-8")
    return study(
        folder,
        STUDY.replace('latency = "20 ms"', 'latency = { kind = "matrix", file = "delays.csv", unit = "ms" }'),
    )


def of_another_file(folder: Path) -> Path:
    for name in ("base", "fair"):
        (folder / name).mkdir()
    (folder / "base" / "mine.py").write_text(METHOD.replace("from helper import PERIOD", "PERIOD = 1.0"))
    base = STUDY.partition("[sweep]")[0].replace('"local"', '"mine.py:Mine"')
    (folder / "base" / "study.toml").write_text(base, encoding="utf-8")
    path = folder / "fair" / "study.toml"
    path.write_text(BESIDE, encoding="utf-8")
    return path


@pytest.mark.long
@pytest.mark.parametrize("make", [study, with_code, with_method, of_another_file])
def test_a_sweep_runs_again_from_its_folder(tmp_path: Path, make) -> None:
    (tmp_path / "here").mkdir()
    first = plan(make(tmp_path / "here"), ["run.duration=1 s"], only=["network.loss=0.2"], seeds=(7,))
    result = run_sweep(first, out=tmp_path / "here" / "runs", execute=here)
    assert not result.errors
    moved = tmp_path / "elsewhere" / "copy"
    shutil.copytree(result.directory, moved)
    shutil.rmtree(tmp_path / "here")
    again = plan(moved)
    assert [cell.key for cell in again.cells] == [cell.key for cell in first.cells]
    assert (again.folder, again.name, again.question) == (first.folder, first.name, first.question)
    assert plan(moved / "sweep.json").cells == again.cells
    ran = run_sweep(again, out=tmp_path / "runs", execute=here)
    assert not ran.errors and ran.cells == len(first.cells)
    assert [cell.key for cell in plan(ran.directory).cells] == [cell.key for cell in first.cells]


@pytest.mark.long
def test_options_in_addition_to_the_folder_change_the_sweep(tmp_path: Path) -> None:
    result = run_sweep(plan(study(tmp_path), seeds=1), out=tmp_path / "runs", execute=here)
    assert len(plan(result.directory).cells) == 4
    again = plan(result.directory, ["run.duration=3 s"], seeds=2, only=["method=gossip"])
    assert [cell.seed for cell in again.cells] == [3, 4, 3, 4]
    assert all("run.duration=3 s" in cell.overrides for cell in again.cells)


@pytest.mark.long
def test_changed_data_is_told(tmp_path: Path) -> None:
    result = run_sweep(plan(with_data(tmp_path)), out=tmp_path / "runs", execute=here)
    assert not result.errors
    same = plan(result.directory)
    assert same.study is not None and list(same.study.data) == ["delays.csv"]
    assert not any("delays.csv" in notice for notice in same.notices)
    (tmp_path / "delays.csv").write_text(MATRIX.replace("20", "30"), encoding="utf-8")
    assert "the content of delays.csv has changed since the study ran" in plan(result.directory).notices


def test_names_of_data_sets_and_comments_stay(tmp_path: Path) -> None:
    """`digits` names the data set, not the code, also beside a file of this name in a comment."""
    text = f'{DIGITS}\n# mine.py:Mine is "quoted"\n[sweep]\nseeds = 1\n'
    planned = plan(study(tmp_path, text))
    assert planned.files["study.toml"].decode() == text


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    result = run_sweep(plan(study(tmp_path), seeds=1), out=tmp_path / "runs", execute=here)
    index = result.directory / "sweep.json"
    index.write_text(index.read_text(encoding="utf-8").replace('"study"', '"other"'), encoding="utf-8")
    said = CliRunner().invoke(app, ["sweep", str(result.directory)])
    assert said.exit_code == 2 and "contains no copy of the sweep's study file" in said.stderr
    said = CliRunner().invoke(app, ["sweep", str(tmp_path)])
    assert said.exit_code == 2 and "it is a folder" in said.stderr
