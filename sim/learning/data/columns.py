"""Columns of a table as numbers: what are numbers stays, texts become one number for each category."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from sim.files.input_file import InputFile, shown

_CATEGORIES_MAX = 10_000
_NUMBERS_MAX = 3 * 10**8  # of all features of a table


@dataclass(frozen=True)
class TablePart:
    """A table and the file that it is from."""

    file: InputFile
    frame: pl.DataFrame

    def row(self, mask: pl.Series) -> str:
        """The first row of those in a mask, as people count: from 1, without the head."""
        return f"row {self.frame['row'][_first(mask)]}"


@dataclass(frozen=True)
class Column:
    """How a column becomes numbers: a number, or, with categories, one for each of them."""

    name: str
    categories: tuple[str, ...] | None

    @property
    def width(self) -> int:
        return 1 if self.categories is None else len(self.categories)


def prepared(
    file: InputFile,
    frame: pl.DataFrame,
    used: Sequence[str],
    missing_values: Sequence[str],
    missing: Literal["refuse", "drop", "fill"],
    needed: Sequence[str],
) -> TablePart:
    """The table with the columns that are used, and the numbers of its rows.

    What is missing is null, where that may be: in none of those that are `needed`. UserError.
    """
    if absent := [name for name in used if name not in frame.columns]:
        raise file.refusal(f"has no column {shown(absent[0])}, but {shown(frame.columns)}")
    frame = frame.select(used).with_row_index("row", offset=1)
    frame = frame.with_columns(
        pl.col(pl.Float64).fill_nan(None),
        pl.when(pl.col(pl.String).is_in(list(missing_values)))
        .then(None)
        .otherwise(pl.col(pl.String))
        .name.keep(),
    )
    part = TablePart(file, frame)
    if missing == "drop":
        part = TablePart(file, frame.drop_nulls())
        if not len(part.frame):
            raise file.refusal("has no row without a missing value; must have one at least")
        return part
    for name in used if missing == "refuse" else needed:
        if (gaps := frame[name].is_null()).any():
            others = "" if name in needed else ', and data.missing = "fill" fills'
            raise file.refusal(
                f'column {shown(name)} has no value; must have one (data.missing = "drop" leaves such rows '
                f"out{others})",
                part.row(gaps),
            )
    return part


def numbers(part: TablePart, name: str) -> pl.Series:
    """A column as float64, with nulls where values are missing. UserError where one is no finite number."""
    column = part.frame[name]
    found = column.cast(pl.Float64, strict=False)
    bad = (found.is_null() & column.is_not_null()) | (found.is_finite() == False).fill_null(False)  # noqa: E712
    if bad.any():
        value = column[_first(bad)]
        raise part.file.refusal(
            f"column {shown(name)} is {shown(value)}; must be a finite number, as other rows are (a column "
            "of categories is named in data.categorical, what stands for nothing in data.missing_values)",
            part.row(bad),
        )
    return found


def learned(part: TablePart, name: str, categorical: bool) -> Column:
    """How a column of features becomes numbers: by those of the training file. UserError."""
    column = part.frame[name]
    known = column.drop_nulls()
    if not len(known):
        raise part.file.refusal(f"column {shown(name)} has no value at all; name it in data.leave_out")
    is_text = known.dtype == pl.String and known.cast(pl.Float64, strict=False).null_count() == len(known)
    if not (categorical or is_text):
        return Column(name, None)
    values = sorted_texts(as_text(known).unique())
    if len(values) > _CATEGORIES_MAX:
        raise part.file.refusal(
            f"column {shown(name)} has {len(values):,} categories; must have {_CATEGORIES_MAX:,} at most: "
            "name it in data.leave_out"
        )
    categories = (*values, "") if column.null_count() else values  # what is missing is one, too
    return Column(name, tuple(categories))


def encoded(part: TablePart, columns: Sequence[Column]) -> tuple[np.ndarray, np.ndarray]:
    """The features [rows, numbers], float32, and which of them are missing: these are 0 for now.

    A category that training did not have is all zeros.
    """
    rows, width = len(part.frame), sum(column.width for column in columns)
    if rows * width > _NUMBERS_MAX:
        widest = max(columns, key=lambda column: column.width)
        raise part.file.refusal(
            f"comes to {rows:,} rows of {width:,} numbers; must be {_NUMBERS_MAX:,} at most "
            f"({shown(widest.name)} alone has {widest.width:,} categories)"
        )
    found, missing = np.zeros((rows, width), dtype=np.float32), np.zeros((rows, width), dtype=bool)
    for place, column in _places(columns):
        if column.categories is None:
            values = numbers(part, column.name)
            found[:, place] = values.fill_null(0.0).to_numpy()
            missing[:, place] = values.is_null().to_numpy()
            continue
        which = places_of(part, column.name, column.categories)
        known = np.flatnonzero(which >= 0)
        found[known, place + which[known]] = 1.0
    return found, missing


def _places(columns: Sequence[Column]) -> Iterator[tuple[int, Column]]:
    place = 0
    for column in columns:
        yield place, column
        place += column.width


def places_of(part: TablePart, name: str, values: Sequence[str]) -> np.ndarray:
    """The place of each row's value among these texts, int64; -1 for others."""
    texts = as_text(part.frame[name]).fill_null("")
    return texts.replace_strict(
        list(values), list(range(len(values))), default=-1, return_dtype=pl.Int64
    ).to_numpy()


def as_text(column: pl.Series) -> pl.Series:
    """A column as texts; whole numbers without a point."""
    if column.dtype == pl.String:
        return column
    whole = column.cast(pl.Int64, strict=False)
    is_whole = bool((whole.cast(pl.Float64) == column).fill_null(True).all())
    return (whole if is_whole else column).cast(pl.String)


def sorted_texts(values: pl.Series) -> tuple[str, ...]:
    """Different texts in order: as numbers if all are, else as texts."""
    as_numbers = values.cast(pl.Float64, strict=False)
    if as_numbers.null_count():
        return tuple(values.sort().to_list())
    return tuple(values.gather(as_numbers.arg_sort()).to_list())


def _first(mask: pl.Series) -> int:
    found = mask.arg_max()
    assert found is not None
    return found
