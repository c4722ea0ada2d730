"""sweep.json: the runs of a sweep, as it writes them and all others read them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator

from sim.files.input_file import InputFile
from sim.plugins.section import USERS_CODE
from sim.results.store.formats import FORMAT, KEY, require_known
from sim.results.store.output_dir import CELL
from sim.scenario.sections.sweep import Comparing

INDEX = "sweep.json"
State = Literal["done", "failed", "waiting"]
DONE: State
FAILED: State
WAITING: State
DONE, FAILED, WAITING = get_args(State)
Value = str | bool | int | float


class _Written(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class _OfAnyVersion(_Written):
    """Another version of coterie may have written it, with keys that this one does not know."""

    model_config = ConfigDict(extra="ignore")


class CellHead(_Written):
    """One run. values: its value on each axis. excluded: clients that do not count when it is compared."""

    values: dict[str, Value]
    seed: NonNegativeInt
    excluded: tuple[NonNegativeInt, ...] = ()

    def __str__(self) -> str:
        return ", ".join(filter(None, [in_words(self.values), f"seed {self.seed}"]))


def in_words(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{axis} = {value}" for axis, value in values.items())


def names_of(values: Sequence[Value]) -> dict[Value, str]:
    """The name of the class or function, where that is unique, of the user's code among an axis's values."""
    code = [each for each in values if isinstance(each, str) and re.match(USERS_CODE, each)]
    found: dict[Value, str] = {each: each.rpartition(":")[2] for each in code}
    called = [str(found.get(each, each)) for each in values]
    return {each: name for each, name in found.items() if called.count(name) == 1}


class IndexedCell(CellHead, _OfAnyVersion):
    """A run of a sweep, and what came of it.

    directory: that of its results, beside the sweep's own; of one that failed, if it left any.
    """

    state: State
    directory: Annotated[str, Field(pattern=r"^[^./][^/]*$")] | None
    error: str | None

    @model_validator(mode="after")
    def _done_has_results(self) -> Self:
        if self.state == DONE and self.directory is None:
            raise ValueError("is done, and has no directory")
        return self


class SweepHead(_Written):
    """What all runs of a sweep have in common. axes: the values of each axis, in order."""

    name: str
    question: str
    axes: dict[str, tuple[Value, ...]]
    seeds: tuple[NonNegativeInt, ...]
    labels: dict[str, str]
    compare: Comparing

    @property
    def names(self) -> dict[str, dict[Value, str]]:
        """By axis and value, the name by which the user's code is called among the values of the axis."""
        return {axis: names_of(values) for axis, values in self.axes.items()}


class SweepIndex(SweepHead, _OfAnyVersion):
    """A sweep: its runs, what came of them, and how they are compared."""

    cells: Annotated[tuple[IndexedCell, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _cells_are_on_the_axes(self) -> Self:
        for number, cell in enumerate(self.cells):
            is_there = cell.values.keys() == self.axes.keys()
            if not is_there or any(value not in self.axes[axis] for axis, value in cell.values.items()):
                raise ValueError(f"cells.{number}.values are none of the axes'")
        return self

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The list of runs in a sweep's directory. UserError."""
        require_known(directory / INDEX)
        return InputFile("", directory / INDEX).parsed(cls.model_validate_json, "the list of a sweep's runs")

    def write(self, directory: Path) -> None:
        """Put it in the place of an earlier one, in one step. Raises OSError."""
        new = directory / f".{INDEX}.new"
        content = {KEY: FORMAT, **self.model_dump(mode="json")}
        new.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        new.replace(directory / INDEX)


class CellMark(_OfAnyVersion):
    """cell.json, of a result directory of a sweep: which run it is, and by which version of coterie."""

    cell: str
    coterie: str | None
    finished: bool

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The mark in a result directory. UserError."""
        return InputFile("", directory / CELL).parsed(cls.model_validate_json, "the mark of a sweep's run")

    def write(self, directory: Path) -> None:
        """Put it into a result directory. Raises OSError."""
        (directory / CELL).write_text(self.model_dump_json() + "\n", encoding="utf-8")
