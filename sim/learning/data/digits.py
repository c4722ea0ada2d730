"""The data set that is built in."""

from typing import Literal

import numpy as np

from sim.files.data_folder import DataFolder
from sim.learning.data.dataset import Dataset, LabelledData
from sim.learning.data.user_arrays import split


class Digits(LabelledData):
    """1,797 handwritten digits, 8x8 pixels as 64 numbers, 10 classes; built in.

    All numbers are shifted and scaled alike: in training they have mean 0 and standard deviation 1.
    """

    classes = 10
    input_shape = (64,)

    name: Literal["digits"]
    """The data set."""

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """The digits of scikit-learn.

        A fixed fifth of every class is the test part, whatever the scenario's seed, so that runs of different
        seeds are tested on the same samples. All pixels share one mean and one standard deviation.
        """
        import torch
        from sklearn.datasets import load_digits  # takes a second to import, and only this data set needs it

        bunch = load_digits()
        pixels = torch.from_numpy(bunch.data / 16).float()
        labels = torch.from_numpy(bunch.target.astype(np.int64))
        train, test = split(bunch.target, 1 / 5, key=1797)
        std, mean = torch.std_mean(pixels[train], correction=0)
        x = (pixels - mean) / std
        return Dataset(x[train], labels[train], x[test], labels[test], self.classes)
