"""Keys of data that are rows of a table."""

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
    """Samples that are the rows of a table: one column is the label, others are the features."""

    label: str | Annotated[_Names, Field(min_length=1)] | None = None
    """Column of the label; in a regression also a list of columns. Classes are in order of the values."""
    client: str | None = None
    """Column with the client of each row, for `partition = "natural"`. It is not a feature."""
    groups: Annotated[tuple[tuple[str | int, ...], ...], Field(min_length=1)] | None = None
    """Clients as lists of values of the column `client`, instead of one client for each value; `["*"]` stands
    for all other values. Rows in no list are left out, and the column is also a feature."""
    features: Annotated[_Names, Field(min_length=1)] | None = None
    """Feature columns; by default all other columns."""
    leave_out: _Names = ()
    """Columns that are not features."""
    categorical: _Names = ()
    """Columns of numbers that are names of categories, for example postal codes."""
    missing: Literal["refuse", "drop", "fill"] = "refuse"
    """Treatment of missing values: the table is refused, or the row is left out, or numbers become the mean
    of their column in training and missing texts become a separate category."""
    missing_values: _Names = _MISSING
    """Texts that stand for a missing value."""
    standardise: bool = True
    """True: columns of numbers are standardized to mean 0 and standard deviation 1 in training."""
    standardise_label: bool = False
    """True: the targets of a regression are standardized; the loss is then in units of their variance."""

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
            raise SettingError("groups", self.groups, "contains a value twice; list each value once")
        return self

    @property
    def labels(self) -> _Names:
        """Columns of the label."""
        return (self.label,) if isinstance(self.label, str) else self.label or ()

    @property
    def no_features(self) -> _Names:
        """Columns that are features only if `features` lists them."""
        whose = (self.client,) if self.client is not None and self.groups is None else ()
        return (*self.labels, *whose, *self.leave_out)

    @property
    def used(self) -> list[str]:
        """Columns that are used: label, client and `features`."""
        whose = (self.client,) if self.client is not None else ()
        return list(dict.fromkeys([*self.labels, *whose, *(self.features or ())]))

    def with_features(self, there: Sequence[str]) -> Self:
        """Return the section with `features` set; the default features are the other columns in `there`."""
        found = self.features or tuple([name for name in there if name not in self.no_features])
        return self.model_copy(update={"features": found})


class TableKeys(TabularData):
    """Keys of a table in a file."""

    name: Literal["table"]
    """Name of the data set."""
    file: DataFile
    """Table; text may be compressed as .gz or .xz. The path is relative to the current folder, the scenario's
    folder, or the data folder."""
    test_file: DataFile | None = None
    """Table with the same columns, for testing."""
    validation_file: DataFile | None = None
    """Table with the same columns, for validation; the partition must be iid or natural."""
    label: str | Annotated[_Names, Field(min_length=1)]
    """Column of the label; in a regression also a list of columns. Classes are in order of the values."""
    columns: _Names = ()
    """Names of all columns, for a text table without a header line."""
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """Character between the values of a line."""
    comment: str = ""
    """Prefix of lines that are left out."""
    strip: str = ""
    """Characters that are removed from both ends of texts, besides white space."""
