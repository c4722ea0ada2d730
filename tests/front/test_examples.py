"""The scripts of the documentation do what they say."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "scripts" / "from_python.py"


def test_the_script_compares_two_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(SCRIPT), run_name="__main__")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("Gossip ") or first.startswith("gossip ")
    assert second.startswith("Alone ")
    assert names["gossip"].summary["messages"]["lost"] > 0 == names["alone"].summary["messages"]["sent"]
