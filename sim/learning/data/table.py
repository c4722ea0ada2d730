"""User-defined table: rows with a label, features, and optionally their client."""

from __future__ import annotations

from sim.files.data_folder import DataFolder
from sim.learning.data.dataset import Dataset
from sim.learning.data.tabular import TableKeys


class TableData(TableKeys):
    """Table, .csv (or other text) or .parquet, with a row for each sample and a column for the label.

    Columns of numbers are features without conversion. Columns of texts become one number for each category:
    1 for the row's category, 0 for the others. Columns of lists become one number for each number or tag.
    """

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """Return the table's rows as numbers. Raises UserError."""
        from sim.learning.data.columns import load_table

        return load_table(self, folder)
