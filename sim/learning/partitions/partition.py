"""Result of a partition, and the base classes of all kinds."""

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
from sim.learning.partitions.dealing import Labels, StatedCount, even_sizes
from sim.members import cluster_misfits


@dataclass(frozen=True)
class Partition:
    """Samples of each client, by client number.

    train, test: indices int64 into the data set's parts. clusters: each client's true cluster; None if there
    are no clusters. label_maps: client i sees the label y as label_maps[i][y] (int64 [K]); None if labels are
    not changed.
    validation: indices into the training part, followed by the data's validation part; None if nothing is
    held out.
    names: names of the clients; None for client-0, client-1, ...
    Each client has samples to train on, and to validate on if samples are held out.
    """

    train: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...]
    clusters: tuple[int, ...] | None = None
    label_maps: tuple[np.ndarray, ...] | None = None
    validation: tuple[np.ndarray, ...] | None = None
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Raise UserError for the first client without samples to train on, or to validate on."""
        for purpose, rows in (("", self.train), ("validation ", self.validation or ())):
            if (empty := next((i for i, own in enumerate(rows) if not len(own)), None)) is not None:
                advice = "" if purpose else ", or set data.partition.samples_per_client"
                raise UserError(
                    f"data.partition: no {purpose}sample is left for client {empty}; reduce "
                    f"clients.count{advice}"
                )

    def cap_test(self, limit: int, seed: int) -> Partition:
        """Return the partition with at most `limit` test samples per client, drawn at random."""
        drawn = list(self.test)
        for i, rows in enumerate(self.test):
            if len(rows) > limit:
                rng = stream(seed, "partition", "cap-test", i)
                drawn[i] = np.sort(rng.choice(rows, limit, replace=False))
        return replace(self, test=tuple(drawn))

    def hold_back(self, share: float, seed: int) -> Partition:
        """Return the partition with a share of each client's training samples, at least one, for validation.

        Raises UserError if no sample is left for training.
        """
        kept, held_back = [], []
        for i, rows in enumerate(self.train):
            count = max(1, round(share * len(rows)))
            if count >= len(rows):
                owns = f"{len(rows)} training sample{'s' * (len(rows) != 1)}"
                instead = "use a smaller share" if len(rows) > 1 else "each client needs at least two"
                raise UserError(
                    f"data.validation_share = {share}: client {i} has {owns}, and none would be left "
                    f"for training; {instead}"
                )
            mixed = stream(seed, "partition", "validation", i).permutation(rows)
            held_back.append(np.sort(mixed[:count]))
            kept.append(np.sort(mixed[count:]))
        return replace(self, train=tuple(kept), validation=tuple(held_back))


class PartitionSection(Settings):
    """Kind of partition: its keys, and `deal`.

    A training sample belongs to at most one client, unless a user-defined list, or "iid" with `repeat`, gives
    it to several. Test samples may be shared: a client is tested on samples that fit its distribution. With
    `samples_per_client`, and without clusters, the samples of a client depend only on the seed and the
    clients before it: an additional last client does not change them.
    """

    needs_classes: ClassVar[bool] = True
    """True if samples are dealt by their class."""
    deals_validation: ClassVar[bool] = False
    """True if the validation part of the data is dealt without any further setting."""

    tests: Literal["own", "all"] = "own"
    """Test samples of a client: samples that fit its training distribution (own), or all samples (all)."""

    @abstractmethod
    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Deal the samples. Raises UserError if there are too few."""

    def misfits(self, clients: int, classes: int, data: str) -> Iterator[SettingError]:
        """Yield settings that are impossible for this many clients and classes of the data set `data`."""
        yield from ()


class SampledPartition(PartitionSection):
    """Kind that can give all clients the same number of samples."""

    samples_per_client: Count | None = None
    """Number of training samples of each client. By default all samples are dealt."""

    @property
    def of_each(self) -> StatedCount | None:
        """The stated number of samples, with its key; None to deal all samples."""
        each = self.samples_per_client
        return None if each is None else StatedCount("data.partition.samples_per_client", each)


class Clustered(SampledPartition):
    """Kind that groups clients with consecutive numbers into clusters: sizes 2, 1 give clusters 0, 0, 1."""

    clusters: Count | None = None
    """Number of clusters; their sizes are as equal as possible."""
    sizes: tuple[Count, ...] | None = None
    """Number of clients in each cluster, instead of `clusters`."""

    @model_validator(mode="after")
    def _one_way(self) -> Clustered:
        exactly_one(self, "clusters", "sizes")
        return self

    def cluster_sizes(self, clients: int) -> list[int]:
        """Return the number of clients in each cluster."""
        if self.sizes is not None:
            return list(self.sizes)
        assert self.clusters is not None
        return even_sizes(clients, self.clusters)

    def misfits(self, clients: int, classes: int, data: str) -> Iterator[SettingError]:
        return cluster_misfits("data.partition.clusters", self.clusters, self.sizes, clients)


def more_than_classes_error(key: str, value: object, classes: int, data: str) -> SettingError:
    """Return the error for a number larger, or a list of sizes longer, than the number of classes."""
    problem = f'must be at most the number of classes of "{data}", {classes}'
    return SettingError(f"data.partition.{key}", value, problem)
