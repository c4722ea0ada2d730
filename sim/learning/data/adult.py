"""UCI Adult: prediction of an income above 50,000 dollars a year, from the census of 1994."""

from typing import Literal, assert_never

import numpy as np

from sim.files.data_folder import DataFolder
from sim.learning.data.dataset import Dataset, LabelledData
from sim.learning.partitions.dealing import Owners

_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
    "income",
)
_NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_SKEWED = {"capital-gain", "capital-loss"}  # 0 for 90% of the people, otherwise up to 99,999
_CATEGORIES = [name for name in _COLUMNS if name not in (*_NUMBERS, "fnlwgt", "income")]
_UNKNOWN = "?"
_INCOMES = ("<=50K", ">50K")
OWNERS = ("non-PhD", "PhD")


class Adult(LabelledData):
    """48,842 people of the census of 1994, 2 classes: income above 50,000 dollars a year, or not.

    `partition = "natural"` makes two clients: people without and with a doctorate (Mohri et al. 2019).
    """

    classes = 2
    input_shape = None

    name: Literal["adult"]
    """Name of the data set."""
    features: Literal["all", "categories"] = "all"
    """Features: all columns, or only the 99 values of the categories, without numbers (Mohri et al. 2019, and
    later papers)."""

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """Read `adult/adult.data` and `adult/adult.test` in the data folder, in the UCI repository's format.

        Features are age, years of education, capital gain and loss, and hours per week, scaled by mean and
        standard deviation of the training part (gain and loss: of log(1 + x)). A 0 or 1 follows for each
        value of each category in the training part; an unknown value ("?") counts as a value. The weight of a
        row in the census (fnlwgt) is not a feature. With `features = "categories"` there are no numbers, and
        "?" is not a value: 99 features. Downloads nothing.
        """
        from sim.files.input_table import TextFormat, read_table
        from sim.learning.data.columns import ColumnConversion, category_indices, encoded
        from sim.learning.data.table_part import TablePart

        tables = []
        for name in ("adult.data", "adult.test"):  # a comment at the top, full stops after incomes
            file = folder.trace('data.name = "adult"', "adult", name)
            frame = read_table(file, TextFormat(",", "|", _COLUMNS, "."))
            tables.append(TablePart(file, frame, np.arange(1, len(frame) + 1)))
        plain: tuple[str, ...] = ()
        no_value = None
        match self.features:
            case "all":
                plain = _NUMBERS
            case "categories":
                no_value = _UNKNOWN
            case _:
                assert_never(self.features)
        columns = [ColumnConversion(name, None) for name in plain]
        for name in _CATEGORIES:
            columns.append(ColumnConversion(name, tuple(sorted(set(tables[0].frame[name]) - {no_value}))))
        found = [encoded(table, columns, wide=True)[0] for table in tables]
        for index, name in enumerate(plain):
            values = [np.log1p(each[:, index]) if name in _SKEWED else each[:, index] for each in found]
            mean, deviation = values[0].mean(), values[0].std() or 1.0
            for part, each in zip(found, values, strict=True):
                part[:, index] = (each - mean) / deviation
        x = [each.astype(np.float32) for each in found]
        y = [category_indices(table, "income", _INCOMES) for table in tables]
        for table, labels in zip(tables, y, strict=True):
            if len(bad := np.flatnonzero(labels < 0)):
                problem = f"income is {table.frame['income'][int(bad[0])]!r}; must be <=50K or >50K"
                raise table.file.refusal(problem, f"row {bad[0] + 1}")
        train, test = [(table.frame["education"] == "Doctorate").cast(int).to_numpy() for table in tables]
        owners = Owners(OWNERS, train, test, np.empty(0, np.int64))
        return Dataset(x[0], y[0], x[1], y[1], self.classes, owners=owners)
