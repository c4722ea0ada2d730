"""A protocol in a user's own file: the example of the README, as it stands there."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from sim.results.store.run_directory import RunDirectory
from tests.simulation.worlds import DIGITS, write

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
EXAMPLE = "docs/examples/pull_gossip.py"
CHOSEN = f"protocol.name={EXAMPLE}:PullGossip"
HELD_BACK = "data.validation_share=0.25"


def test_it_runs_by_its_name_and_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    file = write(tmp_path, DIGITS)
    options = ["--set", CHOSEN, "--set", HELD_BACK, "--set", "run.duration=10 s"]
    result = CliRunner().invoke(
        app,
        ["run", str(file), *options, "--out", str(tmp_path), "--quiet"],
    )
    assert result.exit_code == 0, result.output
    [directory] = tmp_path.glob("world-1-*")
    run = RunDirectory.load(directory)
    assert run.summary()["protocol"] == "PullGossip"
    assert run.summary()["failures"] == []
    assert set(run.summary()["bytes_by_type"]) == {"Pull", "Model"}
    table = run.scan("metrics").collect().filter(name="accuracy")
    first, last = (table.filter(time=time)["value"].mean() for time in (0.0, 10.0))
    assert last > first + 0.3
    # The resolved scenario names the copy beside it, and so runs from anywhere.
    [copy] = run.path.glob("protocol-*/pull_gossip.py")
    assert copy.read_bytes() == (ROOT / EXAMPLE).read_bytes()
    assert f"{copy.relative_to(run.path)}:PullGossip" in run.scenario_text()


def test_help_helps_as_the_readme_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    [line] = [text for text in README.read_text(encoding="utf-8").splitlines() if "my_file.py:PullG" in text]
    words = [word.replace("my_file.py", EXAMPLE) for word in line.split()[1:]]
    shorter = ["--set", "run.duration=10 s", "--set", "clients.count=10", "--out", str(tmp_path), "--quiet"]
    result = CliRunner().invoke(app, [*words, *shorter])
    assert result.exit_code == 0, result.output
    [directory] = tmp_path.iterdir()
    gained = RunDirectory.load(directory).summary()["help"]
    assert gained["mean_gain"] > 0.1


@pytest.mark.skipif(not README.is_file(), reason="there is no README.md yet")
def test_the_readme_shows_it() -> None:
    assert (ROOT / EXAMPLE).read_text(encoding="utf-8").strip() in README.read_text(encoding="utf-8")
