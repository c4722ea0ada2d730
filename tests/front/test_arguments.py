"""Arguments from Python that no function can take: refused in words that quote them, without a traceback."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import coterie
from coterie import UserError
from tests.fuzz import calls


def kind(value: object) -> str:
    """What a test is called by: the values themselves may be no texts."""
    return type(value).__name__


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the results of a run, and a scenario's file: the current one."""
    monkeypatch.chdir(tmp_path)
    Path("world.toml").write_text(tomli_w.dumps(calls._WORLD), encoding="utf-8")
    run = coterie.run(calls._WORLD, quiet=True, out="made")
    run.directory.rename("one")
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_odd_calls_raise_what_is_documented(seed: int, finished: Path) -> None:
    """`make fuzz` makes thousands of them."""
    found = [calls.fault_of(each) for each in range(100 * seed, 100 * seed + 100)]
    assert [each for each in found if each] == []


NO_PATHS = ("a\0b", "\ud800", "y" * 5000, "x/" * 2500, "~nobody-here", "~nobody-here/runs")


@pytest.mark.long
@pytest.mark.parametrize("path", [*NO_PATHS, *map(Path, NO_PATHS)], ids=kind)
def test_what_cannot_be_a_path(path: str | Path, finished: Path) -> None:
    world = calls._WORLD
    uses: dict[str, Callable[[], object]] = {
        "directory": lambda: coterie.load(path),
        "runs": lambda: coterie.compare(path),
        "out": lambda: coterie.run(world, out=path, quiet=True),
        "data_dir": lambda: coterie.run(world, data_dir=path, quiet=True),
        "scenario": lambda: coterie.run(path, quiet=True),
    }
    for name, use in uses.items():
        with pytest.raises(
            UserError, match=rf"^{name} = .*(cannot be the name of a file|the home folder is unknown)"
        ):
            use()
    with pytest.raises(UserError, match=r"^directory = "):
        coterie.resume(path)
    with pytest.raises(UserError, match=r"^scenario = "):
        coterie.sweep(path, set={"run.seed": [1]}, quiet=True)


MOMENTS = (math.nan, math.inf, -math.inf, 10**400, np.array([1.0, 2.0]), "nan s", 1j)


@pytest.mark.parametrize("moment", MOMENTS, ids=kind)
def test_what_is_no_moment(moment: Any, finished: Path) -> None:
    with pytest.raises(UserError, match=r'^at = .*: must be seconds, or a string such as "20 s"'):
        coterie.fork("one", moment, {})
    with pytest.raises(UserError, match=r"^until = .*: must be seconds"):
        coterie.resume("one", until=moment)


ARRAYS = (np.array("x"), np.array(3), np.array(math.nan), np.array(object()))


@pytest.mark.parametrize("array", ARRAYS, ids=kind)
def test_arrays_without_axes(array: np.ndarray, finished: Path) -> None:
    for use in (
        lambda: coterie.compare("one", clients=array),
        lambda: coterie.compare("one", baseline=array if array.dtype.kind != "U" else "x"),
        lambda: coterie.run(calls._WORLD, set=array),
        lambda: coterie.run(calls._WORLD, overwrite=array),
        lambda: coterie.run(calls._WORLD, device=array),
    ):
        with pytest.raises(UserError):
            use()


@pytest.mark.long
@pytest.mark.parametrize("number", [math.nan, math.inf, 10**400, 10**5000, 1j], ids=kind)
def test_what_is_no_target(number: Any, finished: Path) -> None:
    with pytest.raises(UserError, match=r"^target = .*: must be a finite number"):
        coterie.compare("one", target=number)


def test_values_that_no_file_holds(finished: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    for key, value, problem in (
        ("run.seed", 10**5000, "run.seed: a whole number must have at most 64 bits"),
        ("clients.count", endless, "is nested too deeply"),
        (5, 1, "keys must be strings"),
        ("run.seed", {1: 2}, "keys must be strings"),
    ):
        with pytest.raises(UserError, match=problem):
            coterie.run(calls._WORLD, set={key: value})  # type: ignore[dict-item]


def test_the_current_folder_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for use in (lambda: coterie.run("quickstart"), lambda: coterie.load("x"), lambda: coterie.compare("x")):
        with pytest.raises(UserError, match="the current folder no longer exists: change to"):
            use()


def test_results_whose_folder_is_no_utf8(finished: Path) -> None:
    """As the command line gives what a name of another encoding has."""
    run = coterie.run(calls._WORLD, quiet=True, out="x\udcff")
    assert run.report.is_file() and len(run.metrics)
