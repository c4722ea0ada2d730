"""The studies that come with coterie: every run of theirs is valid, and so are axes that they name."""

import tomllib
from pathlib import Path

import jsonschema
import pytest

import sim
from sim.scenario.editor_schema import for_editors
from sim.scenario.protocol_lookup import list_settings
from sim.scenario.schema import scenario_schema
from sim.studies.cells import plan

STUDIES = sorted((Path(sim.__path__[0]).parent / "scenarios/studies").rglob("*.toml"))


def valid(path: Path, *, full: bool) -> None:
    planned = plan(path, seeds=1, full=full)
    assert planned.question
    assert len({cell.key for cell in planned.cells}) == len(planned.cells)
    by, baseline = planned.compare.by, planned.compare.baseline
    assert by is None or by in planned.axes
    if baseline is not None:
        axis, _, value = baseline.partition("=")
        assert value in map(str, planned.axes[axis])


@pytest.mark.long
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_short_form_is_valid(path: Path) -> None:
    valid(path, full=False)


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_full_form_is_valid(path: Path) -> None:
    valid(path, full=True)


@pytest.mark.long
def test_editors_find_nothing_wrong_with_them() -> None:
    validator = jsonschema.Draft202012Validator(for_editors(scenario_schema(list_settings())))
    assert len(STUDIES) == 87
    for path in STUDIES:
        contents = tomllib.loads(path.read_text(encoding="utf-8"))
        assert [f"{path}: {error.message}" for error in validator.iter_errors(contents)] == []
