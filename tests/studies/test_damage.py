"""Sweeps of which files are damaged: what is damaged is refused by name, or run again."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.results.store.output_dir import CELL
from sim.results.store.run_directory import load_checked
from sim.studies.cells import Plan, plan
from sim.studies.index import INDEX
from sim.studies.study import load_study
from sim.studies.sweep import SweepResult, finished_folders, run_sweep
from tests.studies.conftest import here
from tests.studies.test_sweep import counting
from tests.studies.worlds import study

Swept = tuple[Plan, SweepResult]
WAYS: dict[str, Callable[[Path], object]] = {
    "gone": lambda file: None,
    "empty": lambda file: file.touch(),
    "junk": lambda file: file.write_bytes(b"PAR1" + bytes(range(256)) * 4),
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a dangling link": lambda file: file.symlink_to("nowhere"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """A sweep of two runs."""
    folder = tmp_path_factory.mktemp("whole")
    planned = plan(study(folder), ["network.loss=0"], seeds=1)
    return planned, run_sweep(planned, out=folder / "runs", execute=here)


@pytest.fixture
def swept(whole: Swept, tmp_path: Path) -> Path:
    """A copy of its directory, beside which the results are."""
    out = shutil.copytree(whole[1].directory.parent, tmp_path / "runs")
    return out / whole[1].directory.name


def refusal(*words: object) -> str:
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 2, (result.output, result.exception)
    return result.stderr


@pytest.mark.long
@pytest.mark.parametrize("how", [how for how in WAYS if how != "a folder"])  # which may be the user's
@pytest.mark.parametrize("name", ["metrics.parquet", "summary.json", "checksums.json", CELL])
def test_a_damaged_run_is_run_again(whole: Swept, swept: Path, name: str, how: str) -> None:
    planned, out = whole[0], swept.parent
    run = next(
        path.parent
        for path in out.glob(f"*/{CELL}")
        if "gossip" in (path.parent / "scenario.toml").read_text()
    )
    (run / name).unlink()
    WAYS[how](run / name)
    again: list[str] = []
    result = run_sweep(planned, out=out, execute=counting(again))
    assert (again, result.finished_before, result.errors) == ([planned.cells[1].key], 1, {})
    found = finished_folders(out, {cell.key for cell in planned.cells})
    assert len(found) == 2
    for directory in found.values():
        load_checked(out / directory)
    assert len(load_study([swept]).runs) == 2


@pytest.mark.long
@pytest.mark.parametrize("name", ["metrics.parquet", "summary.json", "scenario.toml"])
def test_comparing_refuses_what_is_damaged_and_what_is_of_another_run(swept: Path, name: str) -> None:
    first, second = [path.parent / name for path in sorted(swept.parent.glob(f"*/{CELL}"))]
    kept = first.read_bytes()
    for content in (b"", kept[: len(kept) // 2], second.read_bytes()):
        first.write_bytes(content)
        for words in (["compare", swept], ["compare", first.parent, second.parent]):
            assert f"{first} does not match checksums.json" in refusal(*words)


def wrong(path: str, value: Any) -> Callable[[dict[str, Any]], object]:
    def change(index: Any) -> None:
        *above, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
        for part in above:
            index = index[part]
        index[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (wrong("cells.0.values", None), "cells.0.values: Input should be an object"),
        (
            wrong("cells.0.values", {"method": "other", "network.loss": 0}),
            "cells.0.values do not match axes",
        ),
        (wrong("cells.0.directory", 7), "cells.0.directory: Input should be a valid string"),
        (wrong("cells.0.directory", "../.."), "cells.0.directory: String should match pattern"),
        (wrong("cells.0.directory", None), "cells.0: state is done, but directory is null"),
        (wrong("cells.0.seed", "3"), "cells.0.seed: Input should be a valid integer"),
        (wrong("cells.0.state", ["done"]), "cells.0.state: Input should be 'done', 'failed' or 'waiting'"),
        (wrong("cells", []), "cells: Tuple should have at least 1 item"),
        (wrong("axes", {"method": 1}), "axes.method: Input should be a valid array"),
        (wrong("compare.target", float("nan")), "compare.target: Input should be a finite number"),
        (wrong("labels", []), "labels: Input should be an object"),
        (wrong("name", None), "name: Input should be a valid string"),
        (dict.clear, "name: Field required"),
    ],
)
def test_a_list_of_runs_with_wrong_types(swept: Path, change: Callable[[Any], object], said: str) -> None:
    file = swept / INDEX
    index = json.loads(file.read_text())
    change(index)
    file.write_text(json.dumps(index))
    shown = " ".join(refusal("compare", swept).split())
    assert shown.startswith(f"{file}: is not the index of a sweep, or is damaged: {said}")


@pytest.mark.parametrize("how", [how for how in WAYS if how != "gone"])
def test_a_list_of_runs_that_is_none(whole: Swept, swept: Path, how: str) -> None:
    file = swept / INDEX
    file.unlink()
    WAYS[how](file)
    refused = refusal("compare", swept)
    assert str(file) in refused or "is not a results folder" in refused
    if how != "a folder":  # in whose place no file can be put
        result = run_sweep(whole[0], out=swept.parent, execute=counting([]))
        assert result.finished_before == 2 and len(load_study([swept]).runs) == 2
