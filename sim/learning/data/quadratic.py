"""Quadratic functions, one for each client, as data."""

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from actors.settings.base import SettingError
from actors.settings.members import cluster_misfits
from actors.settings.quantities import Count, Weight, Within
from sim.files.data_folder import DataFolder
from sim.kernel.random import stream
from sim.learning.data.dataset import DataSection, Dataset, Rows, memory_misfits, no_validation
from sim.learning.partitions import Partition
from sim.learning.partitions.dealing import cluster_members, even_sizes, membership

_Curvature = Annotated[PositiveFloat, Within(1e-6, 1_000_000)]


class QuadraticData(DataSection):
    """Quadratic functions a/2 |x - mu_k|^2 with noisy gradients, one mu_k per cluster (CoBo, Example 2)."""

    tasks = ("quadratic",)
    classes = 0
    input_shape = None

    name: Literal["quadratic"]
    """The data set."""
    clusters: Count
    """Number of clusters, as equal in size as possible."""
    dimension: Annotated[PositiveInt, Within(1, 100_000)] = 20
    """Dimension of x."""
    curvatures: Annotated[tuple[_Curvature, ...], Field(min_length=1)] = (1.0, 0.8)
    """The a of the clients of each cluster, in turn."""
    distance: Weight = 2.0
    """Length of each mu_k."""
    noise: Weight = 0.1
    """Standard deviation of each coordinate of a stochastic gradient."""
    samples: Annotated[int, Field(ge=2, multiple_of=2), Within(2, 1_000_000)] = 1000
    """Training rows per client, in pairs of opposite noise, so that their mean is exactly mu_k."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        yield from cluster_misfits("data.clusters", self.clusters, None, clients)
        numbers = clients * self.samples * (self.dimension + 1)
        yield from memory_misfits("data.dimension", self.dimension, clients, numbers)

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """f_i(x) = a_i/2 ||x - mu_k||^2 for client i, k its cluster.

        A row is (a, target) in R^(1 + dimension), to be minimised as a/2 ||x - target||^2. Each client has
        `samples` train rows with target = mu_k + (noise/a) e, e standard normal: a batch of one row gives the
        gradient of f_i plus noise of standard deviation `noise` in every coordinate. The e come in pairs of
        opposite sign, so that the mean over a client's rows is f_i up to a constant, not only in expectation.
        Its single test row has the target mu_k.

        mu_k has norm `distance` and a random direction. Clients are split over the clusters as evenly as
        possible, in blocks; within a cluster they take the curvatures in turn.
        """
        import torch

        samples, dimension = self.samples, self.dimension
        train, test = [], []
        for cluster, members in enumerate(cluster_members(even_sizes(clients, self.clusters))):
            direction = stream(seed, "quadratic", "centre", cluster).standard_normal(dimension)
            centre = self.distance * direction / np.linalg.norm(direction)
            for place, client in enumerate(members):
                a = self.curvatures[place % len(self.curvatures)]
                half = stream(seed, "quadratic", "noise", client).standard_normal((samples // 2, dimension))
                targets = centre + self.noise / a * np.concatenate([half, -half])
                train.append(np.column_stack([np.full(samples, a), targets]))
                test.append(np.concatenate([[a], centre]))
        train_x = torch.from_numpy(np.concatenate(train)).float()
        test_x = torch.from_numpy(np.stack(test)).float()
        labels = torch.zeros(len(train_x), dtype=torch.int64)
        return Dataset(train_x, labels, test_x, labels[:clients], outputs=0)

    def share_out(self, dataset: Dataset, clients: int, seed: int) -> tuple[Partition, Rows]:
        """To each client the rows that were made for it."""
        partition = Partition(
            train=tuple(np.arange(i * self.samples, (i + 1) * self.samples) for i in range(clients)),
            test=tuple(np.array([i]) for i in range(clients)),
            clusters=membership(even_sizes(clients, self.clusters)),
        )
        return partition, no_validation(clients)
