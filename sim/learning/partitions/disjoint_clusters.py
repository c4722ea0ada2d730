"""Clusters with classes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from actors.settings.base import SettingError
from sim.kernel.random import stream
from sim.learning.partitions.dealing import (
    Labels,
    cluster_members,
    deal,
    even_sizes,
    membership,
    rows_by_class,
)
from sim.learning.partitions.partition import Clustered, Partition, more_than_classes


class DisjointClusters(Clustered):
    """Clusters share no class (CoBo, cross-device; SCooL's stochastic block model setting)."""

    kind: Literal["disjoint-clusters"]
    relabel: bool = False
    """Number the classes of each cluster from 0."""

    def misfits(self, clients: int, classes: int, data: str) -> Iterator[SettingError]:
        yield from super().misfits(clients, classes, data)
        if (self.clusters or len(self.sizes or ())) > classes:
            key = "clusters" if self.clusters else "sizes"
            yield more_than_classes(key, self.clusters or self.sizes, classes, data)

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Clusters that own disjoint blocks of classes (CoBo, cross-device; SCooL's block model).

        Cluster k owns the k-th of equal blocks of consecutive classes, whatever its number of clients, who
        share the block's samples at random. Tested on all test samples of the block. With `relabel`, a class
        is called by its place in its block, 0, 1, ... (CoBo's code), so that clusters also contradict each
        other.

        Give `clusters`, for clusters as equal as possible, or their `sizes`; clients are assigned in blocks.
        """
        sizes = self.cluster_sizes(clients)
        train: list[np.ndarray] = []
        test: list[np.ndarray] = []
        maps: list[np.ndarray] = []
        train_by_class = rows_by_class(labels.train, labels.classes)
        test_by_class = rows_by_class(labels.test, labels.classes)
        for k, (block, size) in enumerate(
            zip(cluster_members(even_sizes(labels.classes, len(sizes))), sizes, strict=True)
        ):
            rows = stream(seed, "partition", "block", k).permutation(
                np.concatenate(train_by_class[block.start : block.stop])
            )
            train += deal(rows, size, self.samples_per_client)
            test += [np.sort(np.concatenate(test_by_class[block.start : block.stop]))] * size
            # Foreign classes never reach a client of this cluster; -1 makes an accident visible.
            place = np.full(labels.classes, -1)
            place[block] = np.arange(len(block))
            maps += [place] * size
        return Partition(
            tuple(train), tuple(test), membership(sizes), label_maps=tuple(maps) if self.relabel else None
        )
