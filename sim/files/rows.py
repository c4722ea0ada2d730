"""Rows of small input tables (CSV or Parquet): measured traces, sessions, speeds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.errors import UserError
from sim.files.input_file import InputFile, between, shown

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
            raise self.refusal(f"{column} = {shown(text)}: must be {between(least, most)}{hint}")
        return value

    def word(self, column: str, *allowed: str) -> str:
        """Return the text in a column, one of `allowed`."""
        text = self.values[column]
        if text not in allowed:
            raise self.refusal(f"{column} = {shown(text)}: must be one of {', '.join(allowed)}")
        return text


def read_rows(file: InputFile, *columns: str, head: bool = True) -> list[Row]:
    """Read the rows, at least one, of a CSV or .parquet file with these columns.

    head: whether the first line of a CSV file names the columns, and possibly others.
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
                raise row.refusal(f"has {len(values)} values; must have {expected}{hint}")
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
