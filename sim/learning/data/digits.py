"""Built-in data set of handwritten digits."""

import hashlib
import io
from pathlib import Path
from typing import Literal

import numpy as np

from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.learning.data.dataset import Dataset, LabelledData
from sim.learning.data.user_arrays import split

FILE = Path(__file__).with_name("digits.npz")
"""`images` uint8 [1797, 64], from 0 to 16, and `labels` uint8 [1797]; `docs.build.digits` writes it.

The test part of the UCI repository's Optical Recognition of Handwritten Digits (E. Alpaydin and C. Kaynak,
1998, doi:10.24432/C50P49), licensed CC BY 4.0, in the order of scikit-learn's copy.
"""
_SHA256 = "af104d81e7cd419be5f343d23c6ca2e4e4ff847b06636260802df8e903c6183f"


class Digits(LabelledData):
    """1,797 handwritten digits, 8x8 pixels as 64 numbers, 10 classes; built in.

    All numbers are standardized together: in training they have mean 0 and standard deviation 1.
    """

    classes = 10
    input_shape = (64,)

    name: Literal["digits"]
    """Name of the data set."""

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """Return the digits that come with coterie. Raises UserError if their file is damaged.

        A fixed fifth of every class is the test part, for any seed of the scenario, so that runs with
        different seeds use the same test samples. All pixels share one mean and one standard deviation.
        """
        content = FILE.read_bytes()
        if hashlib.sha256(content).hexdigest() != _SHA256:
            raise UserError("is not the file of digits that comes with coterie; reinstall coterie", FILE)
        with np.load(io.BytesIO(content)) as arrays:
            pixels, labels = (arrays["images"] / 16).astype(np.float32), arrays["labels"].astype(np.int64)
        train, test = split(labels, 1 / 5, key=1797)
        mean, std = [np.float32(of(pixels[train], dtype=np.float64)) for of in (np.mean, np.std)]
        x = (pixels - mean) / std
        return Dataset(x[train], labels[train], x[test], labels[test], self.classes)
