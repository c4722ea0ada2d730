"""Results know the code that made them: by the name of their directory, and by what lies in it."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

import sim.run.save.provenance
from sim.results.store.run_directory import RunDirectory
from sim.run.options import RunOptions
from sim.run.running import RunResult, run_scenario
from sim.run.save.provenance import provenance
from sim.scenario.scenario import load_scenario
from tests.simulation.worlds import QUADRATIC, write

ROOT = Path(__file__).parents[2]
OWN = """\
from protocols.decentralized.local import Local
from provenance_steps import STEPS

class Own(Local):
    async def step(self):
        for _ in range(STEPS):
            await super().step()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario with a protocol in a file beside it, which imports another one."""
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "provenance_steps.py").write_text("STEPS = 2\n")
    write(tmp_path, QUADRATIC.replace('name = "local"', 'name = "own.py:Own"'))
    monkeypatch.delitem(sys.modules, "provenance_steps", raising=False)
    return tmp_path


def run(scenario: Path, out: Path) -> RunResult:
    return run_scenario(load_scenario(scenario), RunOptions(out=out, device="cpu"))


def test_an_edited_protocol_does_not_overwrite_earlier_results(folder: Path) -> None:
    first = run(folder / "world.toml", folder / "runs")
    before = (first.directory / "summary.json").read_bytes()
    (folder / "own.py").write_text(OWN.replace("range(STEPS)", "range(STEPS + 1)"))
    second = run(folder / "world.toml", folder / "runs")
    assert second.directory.name.startswith("world-1-")
    assert second.directory.name.removesuffix("-2") != first.directory.name
    assert (first.directory / "summary.json").read_bytes() == before
    for result, content in ((first, OWN), (second, (folder / "own.py").read_text())):
        [copy] = result.directory.glob("protocol-*")
        assert {path.name for path in copy.glob("*.py")} == {"own.py", "provenance_steps.py"}
        assert (copy / "own.py").read_text() == content


def test_results_run_again_by_their_copy(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Wherever they were moved to, and whatever became of the protocol's file."""
    first = run(folder / "world.toml", folder / "runs")
    (folder / "own.py").write_text("this is no Python any more")
    (folder / "provenance_steps.py").unlink()
    sys.modules.pop("provenance_steps", None)
    moved = first.directory.rename(tmp_path_factory.mktemp("moved") / "elsewhere")
    again = run(moved / "scenario.toml", folder / "again")
    assert again.summary["trace_hash"] == first.summary["trace_hash"]
    assert again.directory.name == first.directory.name
    assert RunDirectory.load(again.directory).scenario_text() == (moved / "scenario.toml").read_text()


def copies(result: RunResult) -> dict[str, str]:
    return {path.name: path.read_text() for path in result.directory.glob("protocol-*/*.py")}


@pytest.mark.long
def test_an_edited_neighbour_is_executed_as_it_is_kept(folder: Path) -> None:
    """In one process, and by edits that the cache of compiled files does not notice."""
    (folder / "own.py").write_text(f"{OWN}        await self.sleep(STEPS / 2)\n")
    first = run(folder / "world.toml", folder / "runs")
    (folder / "provenance_steps.py").write_text("STEPS = 3\n")
    second = run(folder / "world.toml", folder / "runs")
    assert [copies(each)["provenance_steps.py"] for each in (first, second)] == ["STEPS = 2\n", "STEPS = 3\n"]
    assert first.directory.name != second.directory.name.removesuffix("-2")
    assert first.summary["trace_hash"] != second.summary["trace_hash"]
    again = run(second.directory / "scenario.toml", folder / "again")
    assert again.summary["trace_hash"] == second.summary["trace_hash"]


def test_what_is_edited_between_reading_and_running_is_not_kept(folder: Path) -> None:
    scenario = load_scenario(folder / "world.toml")
    (folder / "provenance_steps.py").write_text("STEPS = 3\n")
    assert (
        copies(run_scenario(scenario, RunOptions(out=folder / "runs", device="cpu")))["provenance_steps.py"]
        == "STEPS = 2\n"
    )


def test_the_results_say_what_made_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["coterie", "run", "world.toml"])
    result = run(folder / "world.toml", folder / "runs")
    said = json.loads((result.directory / "provenance.json").read_text())
    assert said["command"] == ["coterie", "run", "world.toml"]
    assert (said["torch"], said["numpy"]) == (torch.__version__, np.__version__)
    assert said["python"] == ".".join(map(str, sys.version_info[:3]))
    assert said["coterie"] == version("coterie")
    assert len(said["made_by"]["the user's code"]) == 8
    assert said["started"][:2] == "20"
    assert said["machine"]["cores"] >= said["machine"]["cores_allowed"] >= 1
    assert said["machine"]["device"] == "cpu"
    assert all(said["machine"][key] for key in ("platform", "cpu"))


# --- which commit -------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which sim/run/save/provenance.py lies, but is not committed."""
    root = tmp_path / "checkout"
    (root / "sim" / "run").mkdir(parents=True)
    (root / "sim" / "run" / "provenance.py").write_text("")
    git(root, "init", "--quiet")
    monkeypatch.setattr(sim.run.save.provenance, "PRODUCT", root)
    monkeypatch.setattr(sim.run.save.provenance, "__file__", str(root / "sim" / "run" / "provenance.py"))
    sim.run.save.provenance._git_commit.cache_clear()
    yield root
    sim.run.save.provenance._git_commit.cache_clear()


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(
        ["git", "-C", str(root), *identity, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit_said() -> tuple[str | None, bool | None]:
    sim.run.save.provenance._git_commit.cache_clear()
    said = provenance("cpu")
    return said["commit"], said["changed_since_commit"]


def test_the_commit_where_it_is_a_checkout(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit_said() == (None, None), "it lies in a repository that is somebody else's"
    git(checkout, "add", "sim")
    git(checkout, "commit", "--quiet", "-m", "first")
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a hook
    commit, changed = commit_said()
    monkeypatch.delenv("GIT_DIR")
    assert (commit, changed) == (git(checkout, "rev-parse", "HEAD"), False)
    (checkout / "notes.txt").write_text("not the product's")
    assert commit_said() == (commit, False)
    (checkout / "sim" / "new.py").write_text("")
    assert commit_said() == (commit, True)


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit_said() == (None, None)
    sim.run.save.provenance._git_commit.cache_clear()
