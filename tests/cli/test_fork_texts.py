"""A fork says whose fork it is, wherever runs are shown; and `coterie runs --out`, and shell completion."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.cli.watch import state
from tests.simulation.worlds import QUADRATIC, run


def coterie(*words: object, **environment: str) -> str:
    result = CliRunner().invoke(app, list(map(str, words)), env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    assert run(tmp_path, QUADRATIC).directory is not None
    return tmp_path / "runs"


@pytest.mark.long
@pytest.mark.report
def test_a_fork_is_shown_as_one(runs: Path) -> None:
    [parent] = runs.iterdir()
    said = f"fork of {parent.name} at 5"
    assert "fork of" not in coterie("runs", runs, COLUMNS="300")
    forked = ["fork", parent, "--at", "5 s", "--set", "network.loss=0.5", "--quiet"]
    result = CliRunner().invoke(app, list(map(str, forked)), env={"COLUMNS": "200"})
    assert f"{said} s\n" in result.stderr
    assert said.removeprefix("fork ") in result.stdout
    [fork] = set(runs.iterdir()) - {parent}
    lines = coterie("runs", runs, COLUMNS="300").splitlines()
    assert [said in line for line in lines if fork.name in line] == [True]
    assert sum(said in line for line in lines) == 1
    facts = {each["name"]: each["facts"] for each in state(runs)["ended"]}
    assert facts[fork.name][0].startswith(said) and not any("fork" in fact for fact in facts[parent.name])
    assert f"<b>{said}" in (fork / "report.html").read_text(encoding="utf-8")
    assert len(coterie("runs", runs, "--csv", "--where", "state=finished").splitlines()) == 3


def test_a_killed_fork_is_shown_as_one(runs: Path) -> None:
    [parent] = runs.iterdir()
    coterie("fork", parent, "--at", "5 s", "--set", "network.loss=0.5", "--quiet")
    [fork] = set(runs.iterdir()) - {parent}
    (fork / "summary.json").unlink()
    line = next(line for line in coterie("runs", runs, COLUMNS="300").splitlines() if fork.name in line)
    assert "damaged" in line and f"fork of {parent.name} at 5" in line
    (fork / "provenance.json").write_text("{", encoding="utf-8")
    coterie("runs", runs)


def test_runs_takes_the_folder_as_out(runs: Path) -> None:
    assert coterie("runs", "--out", runs, "--csv") == coterie("runs", runs, "--csv") != ""
    assert coterie("runs", runs, "--out", runs, "--csv") == coterie("runs", runs, "--csv")
    result = CliRunner().invoke(app, ["runs", str(runs), "--out", "elsewhere"])
    assert result.exit_code == 2 and "--out elsewhere: differs from FOLDER, " in result.stderr


def test_a_shell_completes_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        count = str(len(words.split(" ")) - 1)
        environment = {"_COTERIE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
        return CliRunner().invoke(app, [], env=environment, prog_name="coterie").stdout.split()

    assert completed("coterie ex") == ["explain", "explore", "export"]
    assert completed("coterie export --cl") == ["--client"]
    assert completed("coterie run --device c") == ["cpu", "cuda"]
