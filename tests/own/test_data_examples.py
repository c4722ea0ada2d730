"""The examples of data and partitions of one's own, run as a user runs them."""

import json
import runpy
import shutil
import tomllib
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from tests.lists import require_listed

pytestmark = pytest.mark.report

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "data"
# Of each scenario what a guess reaches, as all clients have about as many samples of each class.
GUESSES = {"moons": 0.5, "features": 0.1, "hospitals": 0.5, "shards": 0.1, "listed": 0.1}


def test_there_is_a_test_for_each() -> None:
    require_listed([path.stem for path in EXAMPLES.glob("*.toml")], GUESSES, f"GUESSES in {__file__}")


@pytest.mark.parametrize("name", GUESSES)
def test_it_learns(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "mine"
    shutil.copytree(EXAMPLES, here, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    monkeypatch.chdir(here)
    if name == "features":
        runpy.run_path("features.py")
    shorter = ["--set", "run.duration=20 s", "--set", "run.compare_alone=false"]
    result = CliRunner().invoke(app, ["run", f"{name}.toml", *shorter, "--quiet"])
    assert result.exit_code == 0, result.output
    [run] = (here / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["accuracy"]["mean"] > GUESSES[name] + 0.2
    assert (run / "report.html").stat().st_size > 10_000


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "old", "new", "key"),
    [
        ("moons", "turn = 0.3", 'turn = "far"', "data.turn"),
        ("moons", "turn = 0.3", "trun = 0.3", "data.trun"),
        ("moons", "samples = 80", "test_share = 2", "data.test_share"),
        ("shards", "shards = 2", "shards = 0.5", "data.partition.shards"),
        ("shards", "shards = 2", "overlap = 3", "data.partition.overlap"),
        ("hospitals", 'missing = "fill"', 'missing = "guess"', "data.missing"),
    ],
)
def test_the_schema_knows_the_keys_of_the_code_that_is_named(name: str, old: str, new: str, key: str) -> None:
    path = EXAMPLES / f"{name}.toml"
    printed = CliRunner().invoke(app, ["schema", str(path)])
    assert printed.exit_code == 0, printed.output
    validator = jsonschema.Draft202012Validator(json.loads(printed.stdout))
    text = path.read_text()
    assert [error.message for error in validator.iter_errors(tomllib.loads(text))] == []
    assert old in text
    errors = validator.iter_errors(tomllib.loads(text.replace(old, new)))
    assert key in {".".join(map(str, error.absolute_path)) for error in errors}
