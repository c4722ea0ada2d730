"""sweep.json: the index of a sweep's runs."""

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


class _StoredModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class _VersionTolerantModel(_StoredModel):
    """A model that ignores unknown keys, which another version of coterie may have written."""

    model_config = ConfigDict(extra="ignore")


class CellHead(_StoredModel):
    """A run. values: its value on each axis. excluded: clients that do not count in comparisons.

    without: axes that cannot affect it, of which it has the first value.
    """

    values: dict[str, Value]
    seed: NonNegativeInt
    excluded: tuple[NonNegativeInt, ...] = ()
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(filter(None, [axis_values_text(self.values), f"seed {self.seed}"]))


def axis_values_text(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{axis} = {value}" for axis, value in values.items())


def plugin_names(values: Sequence[Value]) -> dict[Value, str]:
    """Return the unique names of classes and functions of the user's code among an axis's values."""
    code = [each for each in values if isinstance(each, str) and re.match(USERS_CODE, each)]
    found: dict[Value, str] = {each: each.rpartition(":")[2] for each in code}
    called = [str(found.get(each, each)) for each in values]
    return {each: name for each, name in found.items() if called.count(name) == 1}


class IndexedCell(CellHead, _VersionTolerantModel):
    """A run of a sweep and its outcome.

    directory: its results folder, next to the sweep's folder; for a failed run, if it left results.
    """

    state: State
    directory: Annotated[str, Field(pattern=r"^[^./][^/]*$")] | None
    error: str | None

    @model_validator(mode="after")
    def _done_has_results(self) -> Self:
        if self.state == DONE and self.directory is None:
            raise ValueError("state is done, but directory is null")
        return self


class StudyFile(_VersionTolerantModel):
    """The copy of a study in a sweep's folder, from which the sweep runs again.

    file: its name. overrides, unset, seeds, only, full: options in addition to the file. data: hashes of the
    data files that the runs read, by name.
    """

    file: Annotated[str, Field(pattern=r"^[^./][^/]*$")]
    overrides: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    seeds: NonNegativeInt | tuple[NonNegativeInt, ...] | None = None
    only: tuple[str, ...] = ()
    full: bool = False
    data: dict[str, str] = Field(default_factory=dict)


class SweepHead(_StoredModel):
    """Facts about all runs of a sweep. axes: the values of each axis, in order.

    study: the copy of the study in the sweep's folder; None if there is none.
    """

    name: str
    question: str
    axes: dict[str, tuple[Value, ...]]
    seeds: tuple[NonNegativeInt, ...]
    labels: dict[str, str]
    compare: Comparing
    study: StudyFile | None = None

    @property
    def names(self) -> dict[str, dict[Value, str]]:
        """Short names of the user's code, by axis and value."""
        return {axis: plugin_names(values) for axis, values in self.axes.items()}


class SweepIndex(SweepHead, _VersionTolerantModel):
    """A sweep: its runs, their outcomes, and the settings of its comparison."""

    cells: Annotated[tuple[IndexedCell, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _cells_are_on_the_axes(self) -> Self:
        for number, cell in enumerate(self.cells):
            same_axes = cell.values.keys() == self.axes.keys()
            if not same_axes or any(value not in self.axes[axis] for axis, value in cell.values.items()):
                raise ValueError(f"cells.{number}.values do not match axes")
        return self

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the index in a sweep's folder. Raises UserError."""
        require_known(directory / INDEX)
        return InputFile("", directory / INDEX).parsed(cls.model_validate_json, "the index of a sweep")

    def write(self, directory: Path) -> None:
        """Replace an earlier index atomically. Raises OSError."""
        new = directory / f".{INDEX}.new"
        content = {KEY: FORMAT, **self.model_dump(mode="json")}
        new.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        new.replace(directory / INDEX)


class CellMark(_VersionTolerantModel):
    """cell.json in a results folder of a sweep: key of the run, and version of coterie."""

    cell: str
    coterie: str | None
    finished: bool

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the mark in a results folder. Raises UserError."""
        return InputFile("", directory / CELL).parsed(cls.model_validate_json, "the mark of a run of a sweep")

    def write(self, directory: Path) -> None:
        """Write the mark into a results folder. Raises OSError."""
        (directory / CELL).write_text(self.model_dump_json() + "\n", encoding="utf-8")
