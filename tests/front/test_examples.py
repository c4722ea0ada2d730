"""The scripts of the documentation do what they say."""

import runpy
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "docs" / "examples" / "scripts"


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
        number for number, line in enumerate(lines) if line.startswith("given up; the results up to")
    ]
    assert lines[given_up - 1].startswith("10 s: ") and lines[-1].startswith("20 s: ")
