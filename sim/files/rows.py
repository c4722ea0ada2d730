"""Rows of small input tables (CSV or Parquet): measured traces, sessions, speeds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sim.errors import UserError
from sim.files.input_file import InputFile, excerpt, number_range_text

DECIMAL_POINT = "write numbers with a decimal point; commas separate values"


@dataclass(frozen=True)
class Row:
    """A row of a table, with values by column. The methods raise the UserError of `refusal`."""

    file: InputFile
    position: str
    values: Mapping[str, str]

    def refusal(self, problem: str) -> UserError:
        return self.file.refusal(problem, self.position)

    def number(self, column: str, least: float = -math.inf, most: float = math.inf) -> float:
        """Return the finite number in a column, from `least` to `most`."""
        text = self.values[column]
        try:
            value = float(text) if text.isascii() else math.nan
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and least <= value <= most):
            hint = f" ({DECIMAL_POINT})" if "," in text else ""
            raise self.refusal(f"{column} = {excerpt(text)}: must be {number_range_text(least, most)}{hint}")
        return value

    def word(self, column: str, *allowed: str) -> str:
        """Return the text in a column, one of `allowed`."""
        text = self.values[column]
        if text not in allowed:
            raise self.refusal(f"{column} = {excerpt(text)}: must be one of {', '.join(allowed)}")
        return text


_CENTURY_S = 36_500 * 86_400.0  # about as long as a run may be


def read_cycle(
    file: InputFile, column: str, least: float, most: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Read a repeated quantity over time: the columns `time_s`, from 0 on, and one with its values.

    Returns the times, and one value fewer: values[k] applies from times[k] to times[k + 1]. The last row only
    ends the cycle. Raises UserError.
    """
    rows = read_rows(file, "time_s", column)
    if len(rows) < 2:
        raise file.refusal("has one row; at least two are needed, as the last row ends the cycle")
    times_s = [row.number("time_s", 0, _CENTURY_S) for row in rows]
    if times_s[0] != 0:
        raise rows[0].refusal(f"time_s = {times_s[0]:g}: must be 0, the start of the cycle")
    for row, (before_s, time_s) in zip(rows[1:], pairwise(times_s), strict=True):
        if time_s <= before_s:
            raise row.refusal(
                f"time_s = {time_s:g}: must be larger than {before_s:g}, the time_s of the previous row"
            )
    return tuple(times_s), tuple([row.number(column, least, most) for row in rows[:-1]])


def read_rows(file: InputFile, *columns: str, head: bool = True) -> list[Row]:
    """Read the rows, at least one, of a CSV or .parquet file with these columns.

    head: whether the first line of a CSV file names the columns, and possibly others. Raises UserError.
    """
    if file.path.suffix == ".parquet":
        return _parquet_rows(file, columns)
    reader = csv.reader(io.StringIO(file.text(), newline=""), skipinitialspace=True)
    names: Sequence[str] = () if head else columns
    rows = []
    try:
        for values in filter(None, reader):
            if not names:
                names = [name.strip() for name in values]
                file.require_columns(names, columns, "line 1")
                continue
            row = Row(file, f"line {reader.line_num}", dict(zip(names, values, strict=False)))
            if len(values) != len(names):
                expected = f"{len(names)}: {', '.join(names)}"
                hint = f" ({DECIMAL_POINT})" if len(values) > len(names) else ""
                has = f"{len(values)} value{'s' * (len(values) != 1)}"
                raise row.refusal(f"has {has}; must have {expected}{hint}")
            rows.append(row)
    except csv.Error as error:
        raise file.refusal(f"is not CSV: {error}", f"line {reader.line_num}") from None
    if not rows:
        raise file.refusal("has no rows; must have at least one")
    return rows


def _parquet_rows(file: InputFile, columns: Sequence[str]) -> list[Row]:
    import polars as pl  # slow to import, and rarely used

    from sim.files.input_table import TextFormat, read_table

    frame = read_table(file, TextFormat(",", "", (), ""), columns)
    file.require_columns(frame.columns, columns)
    texts = frame.select(columns).cast(pl.String).fill_null("").iter_rows(named=True)
    return [Row(file, f"row {number}", values) for number, values in enumerate(texts, 1)]
