"""`coterie runs` lists every run, also those that go on, were killed or are damaged."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.results.store.output_dir import PROGRESS, HiddenFolder
from sim.studies.listing import filter_and_sort_runs
from tests.simulation.worlds import QUADRATIC, write

NAME = "world-1-"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Results of a run that has said where they go."""
    words = ["run", str(write(tmp_path, QUADRATIC)), "--set", "training.learning_rate=0.2"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "runs")])
    [results] = (tmp_path / "runs").iterdir()
    assert done.stderr.startswith(f"the results of this run go to {results}\n")
    return results


def listed(folder: Path) -> dict[str, dict[str, str]]:
    done = CliRunner().invoke(app, ["runs", str(folder), "--csv"])
    assert done.exit_code == 0, done.output
    return {row["directory"]: row for row in csv.DictReader(done.stdout.splitlines())}


@pytest.mark.long
def test_every_run_is_listed_with_its_state(whole: Path) -> None:
    runs = whole.parent
    halved, without, tables = (Path(shutil.copytree(whole, runs / f"{whole.name}-{n}")) for n in "234")
    (halved / "summary.json").write_bytes((whole / "summary.json").read_bytes()[:500])
    (without / "summary.json").unlink()
    (tables / "events.parquet").unlink()
    killed, going_on = runs / f".{whole.name}.0123abcd", HiddenFolder(whole).path
    shutil.copytree(without, killed)
    (killed / PROGRESS).write_text(json.dumps({"accuracy": 0.5}))
    for name in ("scenario.toml", "provenance.json"):
        shutil.copy(whole / name, going_on / name)
    (runs / "notes").mkdir()
    (runs / ".cache").mkdir()
    found = listed(runs)
    states = {whole: "finished", halved: "damaged", without: "damaged", tables: "damaged"}
    states |= {killed: "killed", going_on: "running"}
    assert {name: row["state"] for name, row in found.items()} == {str(p): s for p, s in states.items()}
    for row in found.values():
        assert (row["scenario"], row["protocol"], row["seed"]) == ("world", "local", "1")
        assert row["overrides"] == "training.learning_rate=0.2"
        assert row["started"] == found[str(whole)]["started"] != ""
    assert (found[str(killed)]["measure"], found[str(killed)]["result"]) == ("accuracy", "0.5")
    assert found[str(going_on)]["result"] == ""
    (killed / PROGRESS).write_text(json.dumps({"measure": "perplexity", "reached": 12.5}))
    assert (listed(runs)[str(killed)]["measure"], listed(runs)[str(killed)]["result"]) == (
        "perplexity",
        "12.5",
    )
    (killed / PROGRESS).write_text(json.dumps({"measure": "nothing of ours", "reached": 12.5}))
    assert listed(runs)[str(killed)]["result"] == ""


@pytest.mark.long
@pytest.mark.parametrize("junk", ["", "{}", "[1]", '{"run": 5}', "run = 5\n[protocol]", "\x00"])
def test_junk_is_listed_as_damaged(whole: Path, junk: str) -> None:
    for name in ("scenario.toml", "provenance.json", "summary.json"):
        (whole / name).write_text(junk)
    [row] = listed(whole.parent).values()
    assert (row["state"], row["directory"]) == ("damaged", str(whole))


@pytest.mark.parametrize(
    ("measure", "best_first"),
    [
        ("accuracy", [3.0, 2.0, 1.0, None]),
        ("distance", [1.0, 2.0, 3.0, None]),
        ("mae", [1.0, 2.0, 3.0, None]),
    ],
)
def test_the_best_result_comes_first(measure: str, best_first: list[float | None]) -> None:
    rows = [{"measure": measure, "result": result} for result in (None, 2.0, 3.0, 1.0)]
    assert [row["result"] for row in filter_and_sort_runs(rows, (), "-result")] == best_first
    worst_first = [row["result"] for row in filter_and_sort_runs(rows, (), "result")]
    assert worst_first == [*best_first[2::-1], None]
