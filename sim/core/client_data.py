"""Samples of the clients on the computing device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sim.learning.data.dataset import Dataset, Rows
from sim.learning.engine import ClientData


def data_on(
    device: torch.device | str,
    dataset: Dataset,
    train: Rows,
    validation: Rows,
    test: Rows,
    label_maps: Sequence[np.ndarray] | None = None,
    output_numbers: int = 0,
) -> ClientData:
    """Copy the samples of a data set to a device. The other arguments are as for `ClientData`."""
    train_x, train_y, test_x, test_y = [
        torch.from_numpy(part if part.flags.writeable else part.copy()).to(device)
        for part in (dataset.train_x, dataset.train_y, dataset.test_x, dataset.test_y)
    ]
    return ClientData(
        (train_x, train_y),
        (test_x, test_y),
        train_rows=train,
        validation_rows=validation,
        test_rows=test,
        label_maps=label_maps,
        output_numbers=output_numbers,
    )
