"""Arrays of the user's own, from a file: features that a network has made, say."""

from typing import Literal

from sim.files.data_folder import DataFolder
from sim.files.input_file import InputFile, shown
from sim.files.named_files import DataFile
from sim.learning.data.dataset import Dataset
from sim.learning.data.user_arrays import PARTS, ArraysPart, UserArrays

_NUMBER_BYTES, _WIDE_BYTES = 16, 48  # that a number takes until it is float32; until it is scaled


class ArrayData(UserArrays):
    """Arrays from an .npz file: x [samples, ...] and y [samples], and perhaps client [samples], who has it.

    Or x_train, y_train, client_train, and the same of test and of validation. y are classes from 0, or the
    numbers that a regression predicts, [samples] or [samples, numbers].
    """

    name: Literal["arrays"]
    """The data set."""
    file: DataFile
    """The .npz file. Its path is relative to the current folder, the scenario's, or the data folder."""

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        file = folder.file("data.file", self.file)
        return self.made(_parts(file, standardise=self.standardise), file.refusal)


def _parts(file: InputFile, *, standardise: bool) -> dict[str, ArraysPart]:
    """The arrays of each part that the file has."""
    there = file.names()
    names = {part: (f"x_{part}", f"y_{part}", f"client_{part}") for part in PARTS if f"x_{part}" in there}
    if "x" in there and not names:
        names = {"train": ("x", "y", "client")}
    elif "x" in there or "train" not in names:
        raise file.refusal(f"has {shown(there)}; must have x, y (and client), or x_train, y_train, ...")
    parts = {}
    for part, (x, y, client) in names.items():
        found = file.arrays(x, y, *([client] if client in there else []))
        file.require_room(found[0].size * (_WIDE_BYTES if standardise else _NUMBER_BYTES))
        parts[part] = ArraysPart((x, y, client), *found)
    return parts
