"""Names that no file can have end a command with a sentence."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli.studies import app
from tests.scenario.texts import SMALL, write

LONG = "x" * 300


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ["run", LONG],
        ["check", LONG],
        ["sweep", LONG],
        ["report", LONG],
        ["compare", LONG],
        ["compare", ".", LONG],
        ["runs", LONG],
        ["explain", LONG, "--at", "1 s", "--client", "0"],
        ["resume", LONG, "--until", "1 s"],
        ["fork", LONG, "--at", "1 s"],
        ["watch", LONG],
        ["schema", LONG],
        ["schema", f"a/{LONG}/b"],
        ["run", "small.toml", "--data-dir", LONG],
        ["run", "small.toml", "--out", LONG],
        ["sweep", "small.toml", "--out", LONG],
    ],
)
def test_a_path_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, SMALL.replace("digits", "cifar-10"))
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    assert len(result.output.splitlines()) < 8
