"""A table of a data set, with its file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from sim.files.input_file import InputFile


@dataclass(frozen=True)
class TablePart:
    """Table, its file, and the number of each of its rows in the file, int64.

    Columns are texts, numbers (int64, float64), or pl.Enum: classes by name, complete and in order.
    """

    file: InputFile
    frame: pl.DataFrame
    rows: np.ndarray

    def row(self, mask: pl.Series) -> str:
        """Describe the first row for which a mask is True."""
        return f"row {self.rows[first_true_row(mask)]}"


def first_true_row(mask: pl.Series) -> int:
    """Return the index of the first True of a mask, which must contain one."""
    found = mask.arg_max()
    assert found is not None
    return found
