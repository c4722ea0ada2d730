"""Generated data: quadratic functions, one for each client, and linear regressions."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from actors.settings.base import SettingError
from actors.settings.quantities import Count, ShareBelowOne, Weight, Within
from sim.files.data_folder import DataFolder
from sim.kernel.random import stream
from sim.learning.data.dataset import DataSection, Dataset, Rows, empty_validation_rows, memory_misfits
from sim.learning.partitions.dealing import cluster_by_client, cluster_members, even_sizes
from sim.learning.partitions.partition import Partition
from sim.members import cluster_misfits

_Curvature = Annotated[PositiveFloat, Within(1e-6, 1_000_000)]


class QuadraticData(DataSection):
    """Quadratic functions a/2 |x - mu_k|^2 with noisy gradients, one mu_k per cluster (CoBo, Example 2)."""

    tasks = ("quadratic",)
    classes = 0
    input_shape = None

    name: Literal["quadratic"]
    """Name of the data set."""
    clusters: Count
    """Number of clusters; their sizes are as equal as possible."""
    dimension: Annotated[PositiveInt, Within(1, 100_000)] = 20
    """Dimension of x."""
    curvatures: Annotated[tuple[_Curvature, ...], Field(min_length=1)] = (1.0, 0.8)
    """Curvatures a of the clients of each cluster, in rotation."""
    distance: Weight = 2.0
    """Length of each mu_k."""
    noise: Weight = 0.1
    """Standard deviation of each coordinate of a stochastic gradient."""
    samples: Annotated[int, Field(ge=2, multiple_of=2), Within(2, 1_000_000)] = 1000
    """Training rows of each client, in pairs of opposite noise, so that their mean is exactly mu_k."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        yield from cluster_misfits("data.clusters", self.clusters, None, clients)
        numbers = clients * self.samples * (self.dimension + 1)
        yield from memory_misfits("data.dimension", self.dimension, clients, numbers)

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """Return rows of f_i(x) = a_i/2 ||x - mu_k||^2 for client i in cluster k.

        A row is (a, target) in R^(1 + dimension); its loss is a/2 ||x - target||^2. Each client has `samples`
        training rows with target = mu_k + (noise/a) e, e standard normal: a batch of one row gives the
        gradient of f_i plus noise of standard deviation `noise` in every coordinate. The e come in pairs of
        opposite sign, so that a client's mean loss over its rows is exactly f_i plus a constant.
        The single test row of a client has the target mu_k.

        mu_k has norm `distance` and a random direction. Clients are split over the clusters as evenly as
        possible, in blocks; within a cluster they take the curvatures in rotation.
        """
        samples, dimension = self.samples, self.dimension
        train, test = [], []
        for cluster, members in enumerate(cluster_members(even_sizes(clients, self.clusters))):
            direction = stream(seed, "quadratic", "centre", cluster).standard_normal(dimension)
            centre = self.distance * direction / np.linalg.norm(direction)
            for index, client in enumerate(members):
                a = self.curvatures[index % len(self.curvatures)]
                half = stream(seed, "quadratic", "noise", client).standard_normal((samples // 2, dimension))
                targets = centre + self.noise / a * np.concatenate([half, -half])
                train.append(np.column_stack([np.full(samples, a), targets]))
                test.append(np.concatenate([[a], centre]))
        train_x = np.concatenate(train).astype(np.float32)
        test_x = np.stack(test).astype(np.float32)
        labels = np.zeros(len(train_x), dtype=np.int64)
        return Dataset(train_x, labels, test_x, labels[:clients], outputs=0)

    def share_out(self, dataset: Dataset, clients: int, seed: int) -> tuple[Partition, Rows]:
        """Return the rows of each client, which were generated for it."""
        return _client_sample_sets(clients, self.samples, 1, self.clusters), empty_validation_rows(clients)


class SyntheticRegression(DataSection):
    """Linear functions near a common function, with the opposite sign in the second half of the clients.

    Learning to collaborate, section 5.1: y = s_i u_i x + e with u_i = v + r_i, v uniform in [0, 1], r_i
    normal with standard deviation rho, x uniform in [-1, 1], and s_i = -1 for the second half of the clients.
    """

    tasks = ("regression",)
    classes = 1
    input_shape = None

    name: Literal["synthetic-regression"]
    """Name of the data set."""
    samples: Count = 2000
    """Training samples of each client (n), including those for validation."""
    test_samples: Count = 1000
    """Test samples of each client."""
    rho: Weight = 0.1
    """Distance between clients: standard deviation of each coordinate of r_i."""
    dimension: Annotated[PositiveInt, Within(1, 100_000)] = 20
    """Dimension of x."""
    noise: Weight = 0.01
    """Standard deviation of e."""
    validation_share: ShareBelowOne = 0.0
    """Share of each client's training samples that it holds out for validation."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        numbers = clients * (self.samples + self.test_samples) * self.dimension
        yield from memory_misfits("data.samples", self.samples, clients, numbers)

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """Return training and test samples, client by client, each drawn from the client's random stream."""
        common = stream(seed, "synthetic regression", "common").uniform(0, 1, self.dimension)
        parts: list[list[np.ndarray]] = [[], [], [], []]
        for client, half in enumerate(cluster_by_client(even_sizes(clients, 2))):
            draws = stream(seed, "synthetic regression", client)
            own = (common + draws.normal(0, self.rho, self.dimension)) * (-1 if half else 1)
            for index, count in ((0, self.samples), (2, self.test_samples)):
                x = draws.uniform(-1, 1, (count, self.dimension))
                parts[index].append(x)
                parts[index + 1].append((x @ own + draws.normal(0, self.noise, count))[:, None])
        train_x, train_y, test_x, test_y = [np.concatenate(part).astype(np.float32) for part in parts]
        return Dataset(train_x, train_y, test_x, test_y, outputs=1)

    def share_out(self, dataset: Dataset, clients: int, seed: int) -> tuple[Partition, Rows]:
        """Return the samples of each client, which were generated for it."""
        partition = _client_sample_sets(clients, self.samples, self.test_samples, 2)
        if not self.validation_share:
            return partition, empty_validation_rows(clients)
        held_back = partition.hold_back(self.validation_share, seed)
        assert held_back.validation is not None
        return replace(held_back, validation=None), held_back.validation


def _client_sample_sets(clients: int, train: int, test: int, clusters: int) -> Partition:
    """Return the partition that gives each client the next `train` and `test` samples, in equal clusters."""
    rows = [tuple(np.array_split(np.arange(clients * size), clients)) for size in (train, test)]
    return Partition(rows[0], rows[1], cluster_by_client(even_sizes(clients, clusters)))
