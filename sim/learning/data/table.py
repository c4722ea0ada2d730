"""A table of the user's own: rows with a label, with features, and perhaps with the client whose they are."""

from __future__ import annotations

from sim.files.data_folder import DataFolder
from sim.learning.data.dataset import Dataset
from sim.learning.data.tabular import TableKeys


class TableData(TableKeys):
    """A table, .csv (or other text) or .parquet: a row for each sample, a column for its label.

    Columns of numbers are features as they are, columns of texts one number for each category: 1 for the
    row's own, 0 for the others.
    """

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """The table's rows as numbers. Raises UserError."""
        from sim.learning.data.columns import load_table

        return load_table(self, folder)
