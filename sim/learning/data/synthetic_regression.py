"""Linear regressions whose clients agree more or less, or contradict each other, as data."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import PositiveInt

from actors.settings.base import SettingError
from actors.settings.quantities import Count, ShareBelowOne, Weight, Within
from sim.files.data_folder import DataFolder
from sim.kernel.random import stream
from sim.learning.data.dataset import DataSection, Dataset, Rows, memory_misfits, no_validation
from sim.learning.partitions import Partition
from sim.learning.partitions.dealing import even_sizes, membership


class SyntheticRegression(DataSection):
    """Linear functions near to a common one, in the second half of the clients with the opposite sign.

    Learning to collaborate, section 5.1: y = s_i u_i x + e with u_i = v + r_i, v uniform in [0, 1], r_i
    normal with standard deviation rho, x uniform in [-1, 1], and s_i = -1 for the second half of the clients.
    """

    tasks = ("regression",)
    classes = 1
    input_shape = None

    name: Literal["synthetic-regression"]
    """The data set."""
    samples: Count = 2000
    """Training samples of each client (n), those for validation among them."""
    test_samples: Count = 1000
    """Test samples of each client."""
    rho: Weight = 0.1
    """How far clients are apart: standard deviation of each coordinate of r_i."""
    dimension: Annotated[PositiveInt, Within(1, 100_000)] = 20
    """Dimension of x."""
    noise: Weight = 0.01
    """Standard deviation of e."""
    validation_share: ShareBelowOne = 0.0
    """Share of each client's training samples that it holds back for its own validation."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        numbers = clients * (self.samples + self.test_samples) * self.dimension
        yield from memory_misfits("data.samples", self.samples, clients, numbers)

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """Training and test samples of client after client; each client's depend on no other's."""
        import torch

        common = stream(seed, "synthetic regression", "common").uniform(0, 1, self.dimension)
        parts: list[list[np.ndarray]] = [[], [], [], []]
        for client, half in enumerate(membership(even_sizes(clients, 2))):
            draws = stream(seed, "synthetic regression", client)
            own = (common + draws.normal(0, self.rho, self.dimension)) * (-1 if half else 1)
            for place, count in ((0, self.samples), (2, self.test_samples)):
                x = draws.uniform(-1, 1, (count, self.dimension))
                parts[place].append(x)
                parts[place + 1].append((x @ own + draws.normal(0, self.noise, count))[:, None])
        train_x, train_y, test_x, test_y = [torch.from_numpy(np.concatenate(part)).float() for part in parts]
        return Dataset(train_x, train_y, test_x, test_y, outputs=1)

    def share_out(self, dataset: Dataset, clients: int, seed: int) -> tuple[Partition, Rows]:
        """To each client the samples that were made for it."""
        partition = Partition(
            _blocks(clients, self.samples),
            _blocks(clients, self.test_samples),
            membership(even_sizes(clients, 2)),
        )
        if not self.validation_share:
            return partition, no_validation(clients)
        held_back = partition.hold_back(self.validation_share, seed)
        assert held_back.validation is not None
        return replace(held_back, validation=None), held_back.validation


def _blocks(clients: int, size: int) -> tuple[np.ndarray, ...]:
    return tuple([np.arange(client * size, (client + 1) * size) for client in range(clients)])
