"""UCI Adult: who earns more than 50,000 dollars a year, by the census of 1994."""

from __future__ import annotations

from typing import Literal

import numpy as np

from sim.errors import UserError
from sim.files.data_folder import FOLDER_VARIABLE, DataFolder
from sim.files.input_file import InputFile
from sim.learning.data.dataset import Dataset, LabelledData
from sim.learning.partitions.dealing import Owners

_FOLDER, _TRAIN, _TEST = "adult", "adult.data", "adult.test"
_NUMBERS = {0: "age", 4: "education-num", 10: "capital-gain", 11: "capital-loss", 12: "hours-per-week"}
_SKEWED = {"capital-gain", "capital-loss"}  # 0 for nine of ten, and up to 99,999
_CATEGORIES = {
    1: "workclass",
    3: "education",
    5: "marital-status",
    6: "occupation",
    7: "relationship",
    8: "race",
    9: "sex",
    13: "native-country",
}
_EDUCATION, _INCOME, _COLUMNS = 3, 14, 15
_UNKNOWN = "?"
_INCOMES = ("<=50K", ">50K")
OWNERS = ("non-PhD", "PhD")


class Adult(LabelledData):
    """48,842 people of the census of 1994, 2 classes: whether one earns more than 50,000 dollars a year.

    `partition = "natural"` makes two clients: people without and with a doctorate (Mohri et al. 2019).
    """

    classes = 2
    input_shape = None

    name: Literal["adult"]
    """The data set."""
    features: Literal["all", "categories"] = "all"
    """All that is known of a person, or only the 99 values of the categories, without numbers (Mohri et al.
    2019, and whoever follows them)."""

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """From `adult/adult.data` and `adult/adult.test` in the data folder, as the UCI repository has them.

        Features are age, years of education, capital gain and loss and hours per week, scaled by mean and
        standard deviation of the training part (gain and loss: of log(1 + x)), then a 0 or 1 for each value
        of each category in the training part; an unknown value ("?") is one, too. The weight of a row in the
        census (fnlwgt) is no feature. With `features = "categories"` there are no numbers, and "?" is no
        value: 99 features. Downloads nothing.
        """
        import torch

        train, test = [_rows(file) for file in _files(folder)]
        found = _features(train, test, categories_only=self.features == "categories")
        labels = [np.array([_INCOMES.index(row[_INCOME]) for row in rows]) for rows in (train, test)]
        owners = [
            np.array([row[_EDUCATION] == "Doctorate" for row in rows], np.int64) for rows in (train, test)
        ]
        return Dataset(
            torch.from_numpy(found[0]).float(),
            torch.from_numpy(labels[0]),
            torch.from_numpy(found[1]).float(),
            torch.from_numpy(labels[1]),
            self.classes,
            owners=Owners(OWNERS, owners[0], owners[1], np.empty(0, np.int64)),
        )


def _files(folder: DataFolder) -> list[InputFile]:
    root = folder.path / _FOLDER
    files = [InputFile('data.name = "adult"', root / name) for name in (_TRAIN, _TEST)]
    missing = [file.path.name for file in files if not file.path.is_file()]
    if missing:
        raise UserError(
            f'data.name = "adult": {" and ".join(missing)} not found in {root} ({folder.chosen_by}); put '
            f"the files of the UCI repository there, or name another folder: --data-dir, {FOLDER_VARIABLE}"
        )
    return files


def _rows(file: InputFile) -> list[list[str]]:
    """The words of each row, checked: 15, the income one of two, numbers where numbers belong."""
    rows = []
    for number, line in enumerate(file.text().splitlines(), start=1):
        if not line.strip() or line.startswith("|"):  # the test file has a remark on top, and both end empty
            continue
        words = [word.strip() for word in line.split(",")]
        if len(words) != _COLUMNS:
            raise file.refusal(f"has {len(words)} columns; must have {_COLUMNS}", f"line {number}")
        words[_INCOME] = words[_INCOME].removesuffix(".")  # as the test file writes it
        if words[_INCOME] not in _INCOMES:
            raise file.refusal(f"income is {words[_INCOME]!r:.40}; must be <=50K or >50K", f"line {number}")
        for column, name in _NUMBERS.items():
            if not (words[column].isascii() and words[column].isdigit() and len(words[column]) <= 9):
                raise file.refusal(
                    f"{name} is {words[column]!r:.40}; must be a whole number of at most 9 digits",
                    f"line {number}",
                )
        rows.append(words)
    if not rows:
        raise file.refusal("has no row; must have one at least")
    return rows


def _features(*parts: list[list[str]], categories_only: bool) -> list[np.ndarray]:
    """Features [n, d] of each part, by what is in the first."""
    columns: list[list[np.ndarray]] = [[] for _ in parts]
    for column, name in () if categories_only else _NUMBERS.items():
        numbers = [np.array([float(row[column]) for row in rows]) for rows in parts]
        if name in _SKEWED:
            numbers = [np.log1p(values) for values in numbers]
        mean, deviation = numbers[0].mean(), numbers[0].std() or 1.0
        for part, values in zip(columns, numbers, strict=True):
            part.append(((values - mean) / deviation)[:, None])
    for column in _CATEGORIES:
        found = {row[column] for row in parts[0]} - ({_UNKNOWN} if categories_only else set())
        known = np.array(sorted(found))
        for part, rows in zip(columns, parts, strict=True):
            part.append((np.array([row[column] for row in rows])[:, None] == known).astype(float))
    return [np.concatenate(part, axis=1) for part in columns]
