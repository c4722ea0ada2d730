"""The result of partitioning, and the base classes of all kinds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import model_validator

from actors.settings.base import SettingError, Settings, exactly_one
from actors.settings.quantities import Count
from sim.errors import UserError
from sim.kernel.random import stream
from sim.learning.partitions.dealing import Labels, even_sizes
from sim.members import cluster_misfits


@dataclass(frozen=True)
class Partition:
    """The samples of each client, by client number.

    train, test: indices int64 into the data set's parts. clusters: each client's true cluster; None if none
    is defined. label_maps: client i sees the label y as label_maps[i][y] (int64 [K]); None if labels are not
    changed. validation: indices into the training part, and behind it into the data's own validation part;
    None if nothing is held back. names: what the clients are called; None for client-0, client-1, ...
    """

    train: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...]
    clusters: tuple[int, ...] | None = None
    label_maps: tuple[np.ndarray, ...] | None = None
    validation: tuple[np.ndarray, ...] | None = None
    names: tuple[str, ...] | None = None

    def cap_test(self, limit: int, seed: int) -> Partition:
        """The same with at most `limit` test samples per client, drawn at random."""
        drawn = list(self.test)
        for i, rows in enumerate(self.test):
            if len(rows) > limit:
                rng = stream(seed, "partition", "cap-test", i)
                drawn[i] = np.sort(rng.choice(rows, limit, replace=False))
        return replace(self, test=tuple(drawn))

    def hold_back(self, share: float, seed: int) -> Partition:
        """The same with a share of each client's train samples, at least one, for validation instead.

        Raises UserError if nothing is left to train on.
        """
        kept, held_back = [], []
        for i, rows in enumerate(self.train):
            count = max(1, round(share * len(rows)))
            if count >= len(rows):
                owns = f"{len(rows)} sample{'s' * (len(rows) != 1)}"
                raise UserError(
                    f"data.validation_share = {share}: leaves client {i}, who owns {owns}, none to train on"
                )
            mixed = stream(seed, "partition", "validation", i).permutation(rows)
            held_back.append(np.sort(mixed[:count]))
            kept.append(np.sort(mixed[count:]))
        return replace(self, train=tuple(kept), validation=tuple(held_back))


class PartitionSection(Settings):
    """A kind of partition: its keys, and `deal`.

    A training sample belongs to one client at most, unless a list of the user's says otherwise. Test samples
    are shared: a client is tested on all that fit its own distribution. With `samples_per_client`, a client's
    samples depend on the seed and the clients before it only, so one more client at the end changes nothing.
    """

    needs_classes: ClassVar[bool] = True
    """Whether samples are dealt by their class."""

    tests: Literal["own", "all"] = "own"
    """Whether each client is tested on the test samples that fit its own distribution, or on all that there
    are."""

    @abstractmethod
    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Deal the samples. UserError if there are too few."""

    def misfits(self, clients: int, classes: int, data: str) -> Iterator[SettingError]:
        """Settings that are impossible for so many clients and classes of the data set called `data`."""
        yield from ()


class Sampled(PartitionSection):
    """Kinds that can give each client equally many samples."""

    samples_per_client: Count | None = None
    """Training samples of each client. By default all samples are dealt."""


class Clustered(Sampled):
    """Kinds of clusters of clients, in blocks."""

    clusters: Count | None = None
    """Number of clusters, as equal in size as possible."""
    sizes: tuple[Count, ...] | None = None
    """Clients in each cluster, instead of `clusters`."""

    @model_validator(mode="after")
    def _one_way(self) -> Clustered:
        exactly_one(self, "clusters", "sizes")
        return self

    def cluster_sizes(self, clients: int) -> list[int]:
        """The number of clients in each cluster."""
        if self.sizes is not None:
            return list(self.sizes)
        assert self.clusters is not None
        return even_sizes(clients, self.clusters)

    def misfits(self, clients: int, classes: int, data: str) -> Iterator[SettingError]:
        return cluster_misfits("data.partition.clusters", self.clusters, self.sizes, clients)


def more_than_classes(key: str, value: object, classes: int, data: str) -> SettingError:
    """The error for a number larger, or a list of sizes longer, than the number of classes."""
    problem = f'must be at most the number of classes of "{data}", {classes}'
    return SettingError(f"data.partition.{key}", value, problem)
