"""User-defined arrays from a file, for example features that a network computed."""

from typing import Literal

from sim.files.data_folder import DataFolder
from sim.files.input_file import InputFile, excerpt
from sim.files.named_files import DataFile
from sim.learning.data.dataset import Dataset
from sim.learning.data.user_arrays import PARTS, ArraysPart, UserArrays

_NUMBER_BYTES, _WIDE_BYTES = 16, 48  # memory of a number until it is float32; until it is scaled


class ArrayData(UserArrays):
    """Arrays from an .npz file: x [samples, ...] and y [samples], and optionally client [samples] (owners).

    Alternatively x_train, y_train, client_train, and the same for test and validation. y contains classes
    from 0, or the targets of a regression, [samples] or [samples, numbers].
    """

    name: Literal["arrays"]
    """Name of the data set."""
    file: DataFile
    """The .npz file. The path is relative to the current folder, the scenario's folder, or the data
    folder."""

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        file = folder.file("data.file", self.file)
        return self.made(_parts(file, standardise=self.standardise), file.refusal)


def _parts(file: InputFile, *, standardise: bool) -> dict[str, ArraysPart]:
    """Return the arrays of each part in the file."""
    there = file.names()
    names = {part: (f"x_{part}", f"y_{part}", f"client_{part}") for part in PARTS if f"x_{part}" in there}
    if "x" in there and not names:
        names = {"train": ("x", "y", "client")}
    elif "x" in there or "train" not in names:
        raise file.refusal(f"contains {excerpt(there)}; needs x, y (and client), or x_train, y_train, ...")
    parts = {}
    for part, (x, y, client) in names.items():
        found = file.arrays(x, y, *([client] if client in there else []))
        file.require_room(found[0].size * (_WIDE_BYTES if standardise else _NUMBER_BYTES))
        parts[part] = ArraysPart((x, y, client), *found)
    return parts
