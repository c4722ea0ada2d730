"""Commands in a stranger's folder, or about a stranger's results, execute nothing of theirs."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.studies.cells import plan
from sim.studies.sweep import run_sweep
from tests.simulation.worlds import QUADRATIC, run
from tests.studies.conftest import here
from tests.studies.worlds import STUDY, study

TRAP = "open(__file__ + '.sprung', 'a').write('x')\n"
ONE_RUN = STUDY[: STUDY.index("[sweep]")]


@pytest.fixture
def coterie_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command as it is installed, a script elsewhere, given in a folder."""
    script = tmp_path_factory.mktemp("bin") / "coterie"
    script.write_text("from sim.__main__ import main\nif __name__ == '__main__':\n    main()\n")

    def coterie(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, str(script), *map(str, words)]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    return coterie


def sprung(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*.sprung")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "module"),
    [
        (("sweep", "study.toml", "--no-code", "--jobs", "1", "--quiet"), "weakref"),
        pytest.param(
            ("sweep", "study.toml", "--no-code", "--jobs", "1", "--quiet", "--on", "ray"),
            "torch",
            marks=pytest.mark.slow,
        ),
        (("run", "study.toml", "--no-code", "--verify", "--quiet"), "weakref"),
    ],
)
def test_no_process_imports_from_the_current_folder(
    tmp_path: Path, coterie_in: Callable[..., Any], words: tuple[str, ...], module: str
) -> None:
    if "ray" in words:
        pytest.importorskip("ray", reason="Ray is not installed")
    study(tmp_path, ONE_RUN)
    (tmp_path / f"{module}.py").write_text(TRAP)
    done = coterie_in(tmp_path, *words)
    assert (done.returncode, sprung(tmp_path)) == (0, []), done.stderr


@pytest.mark.long
def test_pictures_do_not_hang_on_settings_in_the_current_folder(
    tmp_path: Path, coterie_in: Callable[..., Any]
) -> None:
    planned = plan(study(tmp_path), ["network.loss=0"], seeds=1)
    result = run_sweep(planned, out=tmp_path / "runs", execute=here)
    folder = tmp_path / "stranger's"
    folder.mkdir()
    (folder / "matplotlibrc").write_text("text.usetex: True\nfigure.facecolor: red\n")
    pictures = []
    for place in (tmp_path, folder):
        done = coterie_in(place, "compare", result.directory, "--out", place / "compared")
        assert done.returncode == 0, done.stderr
        pictures.append((place / "compared" / "curves-distance.svg").read_bytes())
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize(
    "words",
    [("explain", "--at", "1 s", "--client", "0"), ("resume", "--until", "3 s"), ("fork", "--at", "1 s")],
)
def test_code_that_results_carry_is_refused_unread(tmp_path: Path, words: tuple[str, ...]) -> None:
    results, copy = with_trap(tmp_path)
    command, *options = words
    done = CliRunner().invoke(app, [command, str(results), *options, "--no-code"])
    assert done.exit_code == 2
    assert "needs Python code that does not come with coterie, which --no-code forbids" in done.stderr
    assert sprung(copy.parent) == []


def test_the_page_of_a_run_is_written_without_code_that_results_carry(tmp_path: Path) -> None:
    results, copy = with_trap(tmp_path)
    for options, problem in ((["--no-code"], "--no-code forbids"), (["--no-replay"], "--no-replay")):
        done = CliRunner().invoke(app, ["explore", str(results), *options])
        assert done.exit_code == 0, done.output
        assert problem in (results / "explore.html").read_text()
    assert sprung(copy.parent) == []


def with_trap(folder: Path) -> tuple[Path, Path]:
    """Results of a run with own code, and the copy of this code in them, to which a trap was added."""
    (folder / "own.py").write_text("from protocols.decentralized.local import Local as Own\n")
    overrides = ["protocol.name=own.py:Own", "run.duration=2 s", "run.evaluate_every=1 s"]
    results = run(folder, QUADRATIC, *overrides).directory
    assert results is not None
    [copy] = results.glob("protocol-*/own.py")
    copy.write_text(TRAP + copy.read_text())
    return results, copy
