"""Clusters of clients: equal within a cluster, with different labels or classes in each cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from actors.settings.base import SettingError
from actors.settings.quantities import Count, Within
from sim.errors import UserError
from sim.kernel.random import stream
from sim.learning.partitions.dealing import (
    ClassPools,
    Labels,
    cluster_by_client,
    cluster_members,
    deal,
    even_sizes,
    rows_by_class,
)
from sim.learning.partitions.iid import deal_at_random
from sim.learning.partitions.partition import Clustered, Partition, PartitionSection, more_than_classes_error
from sim.members import cluster_misfits


class PermutedClusters(Clustered):
    """Clusters see the same inputs with differently permuted labels (CoBo, cross-silo)."""

    kind: Literal["permuted-clusters"]
    shift: Count | None = None
    """Shift of labels: cluster k sees class y as (y + shift k) mod K; by default permutations are random."""

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Give each cluster a separate permutation of all labels, in training and in testing.

        Inputs are distributed to all clients at random, as in `iid`, so that only the labels distinguish the
        clusters. Random permutations differ from each other, but two of them agree on one class on average
        (on none with probability about 1/e). With `shift` no two clusters agree on any class; CoBo's code
        uses shift = 11 on CIFAR-100.
        """
        cluster_of = cluster_by_client(sizes := self.cluster_sizes(clients))
        count, shift = len(sizes), self.shift
        if shift is None:
            maps = _different_permutations(labels.classes, count, seed)
        else:
            if len({shift * k % labels.classes for k in range(count)}) < count:
                raise UserError(
                    f"data.partition.shift = {shift}: with {labels.classes} classes, two of {count} clusters "
                    "would have the same labels; use a shift without a factor in common with the number of "
                    "classes, and no more clusters than classes"
                )
            maps = [(np.arange(labels.classes) + shift * k) % labels.classes for k in range(count)]
        return replace(
            deal_at_random(labels, clients, seed, self.of_each),
            clusters=cluster_of,
            label_maps=tuple(maps[k] for k in cluster_of),
        )


def _different_permutations(classes: int, count: int, seed: int) -> list[np.ndarray]:
    if count > math.factorial(classes):
        raise UserError(
            f"data.partition: {classes} classes have too few permutations for {count} clusters; "
            "use fewer clusters"
        )
    permutations: dict[bytes, np.ndarray] = {}
    for k in range(count):
        rng = stream(seed, "partition", "permutation", k)
        candidate = rng.permutation(classes)
        while candidate.tobytes() in permutations:
            candidate = rng.permutation(classes)
        permutations[candidate.tobytes()] = candidate
    return list(permutations.values())


class DisjointClusters(Clustered):
    """Clusters share no class (CoBo, cross-device; SCooL's stochastic block model setting)."""

    kind: Literal["disjoint-clusters"]
    relabel: bool = False
    """True: number the classes of each cluster from 0."""

    def misfits(self, clients: int, classes: int, data: str) -> Iterator[SettingError]:
        yield from super().misfits(clients, classes, data)
        if (self.clusters or len(self.sizes or ())) > classes:
            key = "clusters" if self.clusters else "sizes"
            yield more_than_classes_error(key, self.clusters or self.sizes, classes, data)

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Give cluster k the k-th block of consecutive classes; the blocks are as equal as possible.

        The training samples of a block are dealt at random to the clients of its cluster, who are tested on
        all test samples of the block. With `relabel`, the label of a class is its index in its block (CoBo's
        code), so that clusters also contradict each other.
        """
        sizes = self.cluster_sizes(clients)
        train: list[np.ndarray] = []
        test: list[np.ndarray] = []
        maps: list[np.ndarray] = []
        train_by_class = rows_by_class(labels.train, labels.classes)
        test_by_class = rows_by_class(labels.test, labels.classes)
        blocks = cluster_members(even_sizes(labels.classes, len(sizes)))
        for k, (block, size) in enumerate(zip(blocks, sizes, strict=True)):
            rows = np.concatenate(train_by_class[block.start : block.stop])
            mixed = stream(seed, "partition", "block", k).permutation(rows)
            train += deal(mixed, size, self.of_each)
            test += [np.sort(np.concatenate(test_by_class[block.start : block.stop]))] * size
            # Other classes never reach a client of this cluster; -1 makes errors visible.
            new_label = np.full(labels.classes, -1)
            new_label[block] = np.arange(len(block))
            maps += [new_label] * size
        return Partition(
            tuple(train), tuple(test), cluster_by_client(sizes), tuple(maps) if self.relabel else None
        )


class MaplClusters(PartitionSection):
    """Four scenarios of MAPL: disjoint or overlapping classes, with equal or unequal numbers of samples."""

    kind: Literal["mapl"]
    scenario: Annotated[int, Field(ge=1, le=4)]
    """Scenario: 1 has disjoint classes, 2 overlapping ones; 3 and 4 are 1 and 2 with different sample
    counts."""
    images_per_class: Count = 300
    """Training samples per class and client; in scenarios 3 and 4 the largest number."""
    images_per_class_min: Count = 100
    """Smallest number of training samples per class and client in scenarios 3 and 4."""
    shared_classes: Annotated[int, Field(ge=0, le=100, multiple_of=2)] = 2
    """Number of classes that neighboring clusters share in scenarios 2 and 4."""
    test_images_per_class: Count = 15
    """Test samples per class and client."""
    clusters: Annotated[int, Field(ge=2), Within(2, 1_000_000)] = 2
    """Number of clusters."""

    @model_validator(mode="after")
    def _ordered(self) -> MaplClusters:
        if self.scenario >= 3 and self.images_per_class_min > self.images_per_class:
            problem = f"must be at most images_per_class ({self.images_per_class})"
            raise SettingError("images_per_class_min", self.images_per_class_min, problem)
        return self

    def misfits(self, clients: int, classes: int, data: str) -> Iterator[SettingError]:
        yield from cluster_misfits("data.partition.clusters", self.clusters, None, clients)
        if self.clusters > classes:
            yield more_than_classes_error("clusters", self.clusters, classes, data)

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Deal the samples as in the four scenarios of MAPL (section 5): clusters with different classes.

        Scenario 1: equal blocks of consecutive classes. Scenario 2: neighboring blocks overlap in
        `shared_classes` classes (2 as in the paper's figure, classes 0-5 and 4-9; 4 as in the authors' code,
        0-6 and 3-9). Scenarios 3 and 4 are 1 and 2 with numbers of samples drawn per client, uniformly. No
        two clients share a training image, which the paper leaves open.
        """
        cluster_of = cluster_by_client(even_sizes(clients, self.clusters))
        margin = self.shared_classes // 2 if self.scenario in (2, 4) else 0
        owned = [
            range(max(0, block.start - margin), min(labels.classes, block.stop + margin))
            for block in cluster_members(even_sizes(labels.classes, self.clusters))
        ]
        pools = ClassPools(labels, seed)
        by_class = rows_by_class(labels.test, labels.classes)
        train, test = [], []
        for i, k in enumerate(cluster_of):
            rng = stream(seed, "partition", "mapl", i)
            count = self.images_per_class
            if self.scenario in (3, 4):
                count = int(rng.integers(self.images_per_class_min, count, endpoint=True))
            train.append(np.sort(np.concatenate([pools.take(label, count) for label in owned[k]])))
            seen = [rng.permutation(by_class[label])[: self.test_images_per_class] for label in owned[k]]
            test.append(np.sort(np.concatenate(seen)))
        return Partition(tuple(train), tuple(test), cluster_of)
