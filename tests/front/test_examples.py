"""The scripts of the documentation do what they say."""

import csv
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sim.run.resume.trained_models import trained_models
from tests.simulation.test_scenarios import skip_without_data
from tests.simulation.worlds import DIGITS, run

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "docs" / "examples" / "scripts"


@pytest.mark.long
def test_the_script_compares_two_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(SCRIPTS / "from_python.py"), run_name="__main__")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("Gossip ") or first.startswith("gossip ")
    assert second.startswith("Alone ")
    assert names["gossip"].summary["messages"]["lost"] > 0 == names["alone"].summary["messages"]["sent"]


def test_a_run_that_gets_nowhere_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(SCRIPTS / "stop_early.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    [given_up] = [
        number for number, line in enumerate(lines) if line.startswith("given up; the results so far")
    ]
    assert lines[given_up - 1].startswith("10 s: ") and lines[-1].startswith("20 s: ")


@pytest.mark.long
def test_prototypes_of_a_class_come_together_but_not_the_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without_data("mapl_few")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(SCRIPTS / "mapl_prototypes.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    first, *_, last = [[float(each) for each in re.findall(r"\d\.\d\d", line)] for line in lines]
    assert first[0] > 0.5 > 0.1 > last[0]
    assert last[1] > 0.5
    with (tmp_path / "prototypes.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 6 * 5  # looks, clients, classes of each
    assert {row["class"] for row in rows if row["client"] == "client-5"} == set("56789")


@pytest.mark.long
def test_an_exported_model_is_used_without_coterie(tmp_path: Path) -> None:
    models = ROOT / "docs" / "examples" / "models"
    own = [f"model.name={models / 'transformer.py'}:Transformer", "model.width=32", "run.duration=2 s"]
    directory = run(tmp_path, DIGITS, *own).directory
    assert directory is not None
    [model] = trained_models(directory, [3])
    file = model.save(tmp_path)
    script = [sys.executable, models / "exported.py", file]
    printed = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert printed == f"tensor([{model.outputs(np.zeros((1, 64))).argmax()}])\n"
