"""The notebooks of the documentation are those of their texts, and their cells run."""

import json
from pathlib import Path
from typing import Any

import pytest

from docs.build.notebooks import FOLDER, cells_of, made

TEXTS = sorted(FOLDER.glob("*.py"))


def shown(notebook: dict[str, Any]) -> list[list[tuple[str, ...]]]:
    """What kinds of output each cell has."""
    outputs = [cell.get("outputs", []) for cell in notebook["cells"]]
    return [
        [kind for each in some for kind in (each["output_type"], *each.get("data", {}))] for some in outputs
    ]


SLOW = ("stragglers",)


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [pytest.param(each, marks=pytest.mark.slow if each.stem in SLOW else ()) for each in TEXTS],
    ids=[text.stem for text in TEXTS],
)
def test_a_notebook_is_that_of_its_text(text: Path) -> None:
    """Its numbers may be others on another processor."""
    kept = json.loads(text.with_suffix(".ipynb").read_text(encoding="utf-8"))
    again = made(text.read_text(encoding="utf-8"))
    told = [(cell["cell_type"], cell["source"]) for cell in kept["cells"]]
    assert told == cells_of(text.read_text(encoding="utf-8")), "run `make reference`"
    assert shown(kept) == shown(again)
    assert kept.keys() == again.keys() and kept["nbformat"] == 4


def test_there_are_three() -> None:
    assert [text.stem for text in TEXTS] == ["first_run", "own_method", "stragglers"]
