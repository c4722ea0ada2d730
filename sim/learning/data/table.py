"""A table of the user's own: rows with a label, with features, and perhaps with the client whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from actors.settings.base import SettingError
from sim.files.data_folder import DataFolder
from sim.files.input_file import shown
from sim.learning.data.dataset import Dataset
from sim.learning.data.user_arrays import CLASSES_MAX, ArraysPart, UserData, Wanted, dataset_of

if TYPE_CHECKING:
    from sim.learning.data.columns import TablePart

_Names = tuple[str, ...]
_OTHERS = "*"


class TableData(UserData):
    """A table, .csv (or other text) or .parquet: a row for each sample, a column for its label.

    Columns of numbers are features as they are, columns of texts one number for each category: 1 for the
    row's own, 0 for the others.
    """

    name: Literal["table"]
    """The data set."""
    file: str
    """The table; text may be compressed as .gz or .xz. Its path is relative to the current folder, the
    scenario's, or the data folder."""
    test_file: str | None = None
    """A table like it, to test on."""
    label: str | Annotated[_Names, Field(min_length=1)]
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
    missing_values: _Names = ("", "?", "NA", "NaN", "nan", "null")
    """Texts that stand for a missing value."""
    standardise: bool = True
    """Whether columns of numbers are shifted and scaled to mean 0 and standard deviation 1 in training."""
    standardise_label: bool = False
    """Whether the numbers that a regression predicts are; its loss is then in units of their variance."""
    columns: _Names = ()
    """The names of all columns, for a table of text whose first line does not say them."""
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """What stands between the values of a line."""
    comment: str = ""
    """Lines that begin with it are left out."""
    strip: str = ""
    """Characters that are taken away at both ends of texts, beside white space."""

    @model_validator(mode="after")
    def _fits_together(self) -> TableData:
        if self.groups is not None and self.client is None:
            raise SettingError("groups", None, "needs data.client, the column whose values it groups")
        if not isinstance(self.label, str) and self.purpose != "regression":
            raise SettingError("label", self.label, 'must be one column, unless data.task = "regression"')
        if self.standardise_label and self.purpose != "regression":
            raise SettingError("standardise_label", True, 'is for data.task = "regression"')
        values = [str(value) for group in self.groups or () for value in group]
        if len(set(values)) < len(values):
            raise SettingError("groups", self.groups, "has a value twice; must have each once")
        return self

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """The table's rows as numbers. Raises UserError."""
        from sim.learning.data.columns import encoded, learned

        files = {"train": ("data.file", self.file), "test": ("data.test_file", self.test_file)}
        tables = {
            name: self._table(key, folder, path) for name, (key, path) in files.items() if path is not None
        }
        train = tables["train"]
        if unknown := [name for name in self.categorical if name not in train.frame.columns]:
            raise train.file.refusal(f"has no column {shown(unknown[0])}, which data.categorical names")
        names = self.features or [
            name for name in train.frame.columns if name not in ("row", *self._no_features)
        ]
        if not names:
            raise train.file.refusal("has no column of features beside label and client; must have one")
        columns = [learned(train, name, name in self.categorical) for name in names]
        labels = _Labels(self, train)
        owners = _Owners(self, list(tables.values()))
        parts = {}
        for name, table in tables.items():
            kept, whose = owners.of(table)
            x, missing = encoded(table, columns)
            names_of = ("x", "y", "client")
            parts[name] = ArraysPart(x[kept], labels.of(table)[kept], whose, names_of, missing[kept])
        scaled = np.concatenate(
            [np.full(column.width, self.standardise and column.categories is None) for column in columns]
        )
        wanted = Wanted(self.purpose == "regression", labels.count, self.test_share, scaled)
        return dataset_of(parts, wanted, train.file.refusal)

    def _table(self, key: str, folder: DataFolder, path: str) -> TablePart:
        from sim.files.table_file import TextFormat, read_table
        from sim.learning.data.columns import prepared

        file = folder.file(key, path)
        frame = read_table(file, TextFormat(self.separator, self.comment, self.columns, self.strip))
        needed = dict.fromkeys([*self.labels, *([self.client] if self.client else [])])
        features = self.features or [name for name in frame.columns if name not in self._no_features]
        used = dict.fromkeys([*needed, *features])
        return prepared(file, frame, list(used), self.missing_values, self.missing, list(needed))

    @property
    def labels(self) -> _Names:
        """The columns of the label."""
        return (self.label,) if isinstance(self.label, str) else self.label

    @property
    def _no_features(self) -> _Names:
        whose = (self.client,) if self.client is not None and self.groups is None else ()
        return (*self.labels, *whose, *self.leave_out)


class _Labels:
    """What becomes of the label's columns: places among the training table's values, or numbers."""

    def __init__(self, section: TableData, train: TablePart) -> None:
        from sim.learning.data.columns import as_text, numbers, sorted_texts

        self._section = section
        self._values: tuple[str, ...] = ()
        self._mean, self._std = np.zeros(1), np.ones(1)
        if section.purpose == "regression":
            if section.standardise_label:
                found = np.column_stack([numbers(train, name).to_numpy() for name in section.labels])
                self._mean, self._std = (
                    found.mean(axis=0),
                    np.where(np.ptp(found, axis=0) > 0, found.std(axis=0), 1),
                )
            return
        [name] = section.labels
        self._values = sorted_texts(as_text(train.frame[name]).unique())
        if not 2 <= len(self._values) <= CLASSES_MAX:
            raise train.file.refusal(
                f"column {shown(name)} has {len(self._values):,} different values; must have from 2 to "
                f"{CLASSES_MAX:,}, the classes"
            )

    @property
    def count(self) -> int | None:
        """How many classes there are; None in a regression."""
        return len(self._values) or None

    def of(self, table: TablePart) -> np.ndarray:
        """Classes int64 [rows], or numbers [rows, columns]. UserError."""
        from sim.learning.data.columns import numbers, places_of

        if not self._values:
            found = np.column_stack([numbers(table, name).to_numpy() for name in self._section.labels])
            return (found - self._mean) / self._std
        [name] = self._section.labels
        places = places_of(table, name, self._values)
        unknown = np.flatnonzero(places < 0)
        if len(unknown):
            value = table.frame[name][int(unknown[0])]
            raise table.file.refusal(
                f"column {shown(name)} is {shown(value)}; must be a class of data.file: "
                f"{shown(list(self._values))}",
                f"row {table.frame['row'][int(unknown[0])]}",
            )
        return places


class _Owners:
    """Which rows are used, and whose they are."""

    def __init__(self, section: TableData, tables: Sequence[TablePart]) -> None:
        from sim.learning.data.columns import as_text, sorted_texts

        self._client, self._groups = section.client, section.groups
        if self._client is None:
            return
        texts = [as_text(table.frame[self._client]) for table in tables]
        # "007" is a name, and another one than "7".
        again = [each.cast(int, strict=False).cast(str) for each in texts]
        self._numbered = all(
            [bool((a == b).fill_null(False).all()) for a, b in zip(again, texts, strict=True)]
        )
        if self._groups is None:
            return
        values = {
            value for table in tables for value in as_text(table.frame[self._client]).unique().to_list()
        }
        named = [str(value) for group in self._groups for value in group]
        unknown = [value for value in named if value not in values | {_OTHERS}]
        if unknown:
            there = sorted_texts(as_text(tables[0].frame[self._client]).unique())
            raise tables[0].file.refusal(
                f"column {shown(self._client)} has no value {shown(unknown[0])}, which data.groups names, "
                f"but {shown(list(there))}"
            )

    def of(self, table: TablePart) -> tuple[np.ndarray, np.ndarray | None]:
        """The rows that are used, and the client of each of them, if there are clients."""
        from sim.learning.data.columns import as_text, places_of

        rows = np.arange(len(table.frame))
        if self._client is None:
            return rows, None
        if self._groups is None:
            texts = as_text(table.frame[self._client])
            return rows, (texts.cast(int) if self._numbered else texts).to_numpy()
        of_value = {str(value): place for place, group in enumerate(self._groups) for value in group}
        others = of_value.pop(_OTHERS, -1)
        found = places_of(table, self._client, list(of_value))
        groups = np.array([*of_value.values(), others])  # the last one for all that are not named, at -1
        whose = groups[found]
        kept = np.flatnonzero(whose >= 0)
        return kept, whose[kept]
