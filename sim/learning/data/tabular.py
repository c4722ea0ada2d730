"""The keys of data that are rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from actors.settings.base import SettingError
from sim.files.named_files import DataFile
from sim.learning.data.user_arrays import UserData

_Names = tuple[str, ...]
_MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NaT", "NULL", "null", "None")


class TabularData(UserData):
    """Samples that are the rows of a table: a column is the label, others the features."""

    label: str | Annotated[_Names, Field(min_length=1)] | None = None
    """The column of the label; in a regression also a list of columns. Classes are in order of the values."""
    client: str | None = None
    """The column that says whose a row is, for `partition = "natural"`. It is no feature."""
    groups: Annotated[tuple[tuple[str | int, ...], ...], Field(min_length=1)] | None = None
    """The clients as lists of values of the column `client`, instead of one for each value; `["*"]` stands
    for all other values. Rows that are in no list are left out, and then the column is a feature as well."""
    features: Annotated[_Names, Field(min_length=1)] | None = None
    """The columns of the features; by default all others."""
    leave_out: _Names = ()
    """Columns that are no features."""
    categorical: _Names = ()
    """Columns of numbers that are names of categories: postal codes, say."""
    missing: Literal["refuse", "drop", "fill"] = "refuse"
    """What is done where a value is missing: the table is refused, or the row left out, or numbers become the
    mean of their column in training, and for texts it is a category of its own."""
    missing_values: _Names = _MISSING
    """Texts that stand for a missing value."""
    standardise: bool = True
    """Whether columns of numbers are shifted and scaled to mean 0 and standard deviation 1 in training."""
    standardise_label: bool = False
    """Whether the numbers that a regression predicts are; its loss is then in units of their variance."""

    @model_validator(mode="after")
    def _fits_together(self) -> TabularData:
        if self.groups is not None and self.client is None:
            raise SettingError("groups", None, "needs data.client, the column whose values it groups")
        if isinstance(self.label, tuple) and self.purpose != "regression":
            raise SettingError("label", self.label, 'must be one column, unless data.task = "regression"')
        if self.standardise_label and self.purpose != "regression":
            raise SettingError("standardise_label", True, 'is for data.task = "regression"')
        values = [str(value) for group in self.groups or () for value in group]
        if len(set(values)) < len(values):
            raise SettingError("groups", self.groups, "has a value twice; must have each once")
        return self

    @property
    def labels(self) -> _Names:
        """The columns of the label."""
        return (self.label,) if isinstance(self.label, str) else self.label or ()

    @property
    def no_features(self) -> _Names:
        """The columns that are none, unless they are named."""
        whose = (self.client,) if self.client is not None and self.groups is None else ()
        return (*self.labels, *whose, *self.leave_out)

    @property
    def used(self) -> list[str]:
        """The columns that are, once the features are stated."""
        whose = (self.client,) if self.client is not None else ()
        return list(dict.fromkeys([*self.labels, *whose, *(self.features or ())]))

    def with_features(self, there: Sequence[str]) -> Self:
        """The section with its features stated, where by default they are of these columns."""
        found = self.features or tuple([name for name in there if name not in self.no_features])
        return self.model_copy(update={"features": found})


class TableKeys(TabularData):
    """The keys of a table that is a file."""

    name: Literal["table"]
    """The data set."""
    file: DataFile
    """The table; text may be compressed as .gz or .xz. Its path is relative to the current folder, the
    scenario's, or the data folder."""
    test_file: DataFile | None = None
    """A table like it, to test on."""
    label: str | Annotated[_Names, Field(min_length=1)]
    """The column of the label; in a regression also a list of columns. Classes are in order of the values."""
    columns: _Names = ()
    """The names of all columns, for a table of text whose first line does not say them."""
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """The character between the values of a line."""
    comment: str = ""
    """Lines that begin with it are left out."""
    strip: str = ""
    """Characters that are taken away at both ends of texts, beside white space."""
