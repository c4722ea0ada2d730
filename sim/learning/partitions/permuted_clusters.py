"""Clusters that disagree on what the classes are called."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np

from actors.settings.quantities import Count
from sim.errors import UserError
from sim.kernel.random import stream
from sim.learning.partitions.dealing import Labels, membership
from sim.learning.partitions.iid import deal_at_random
from sim.learning.partitions.partition import Clustered, Partition


class PermutedClusters(Clustered):
    """Clusters see the same inputs with differently permuted labels (CoBo, cross-silo)."""

    kind: Literal["permuted-clusters"]
    shift: Count | None = None
    """Cluster k calls the class y (y + shift k) mod K; by default permutations are random."""

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Clusters that disagree on what the classes are called (CoBo, cross-silo).

        Each cluster sees all labels through a permutation of its own, in training and in testing; inputs are
        dealt to all clients at random, as in `iid`, so that only the labels tell the clusters apart. The
        permutations are random and pairwise different, no more: two of them agree on one class on average (on
        none with probability 1/e, about, on all but two at worst). With `shift`, cluster k calls the class y
        (y + shift k) mod K instead, and no two clusters agree on any class; CoBo's code does so on CIFAR-100
        with shift = 11.

        Give `clusters`, for clusters as equal as possible, or their `sizes`; clients are assigned in blocks.
        """
        sizes = self.cluster_sizes(clients)
        count = len(sizes)
        shift = self.shift
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
        cluster_of = membership(sizes)
        return replace(
            deal_at_random(labels, clients, seed, self.samples_per_client),
            clusters=cluster_of,
            label_maps=tuple(maps[k] for k in cluster_of),
        )


def _different_permutations(classes: int, count: int, seed: int) -> list[np.ndarray]:
    if count > math.factorial(classes):
        raise UserError(f"data.partition: {classes} classes have fewer than {count} different permutations")
    permutations: dict[bytes, np.ndarray] = {}
    for k in range(count):
        rng = stream(seed, "partition", "permutation", k)
        candidate = rng.permutation(classes)
        while candidate.tobytes() in permutations:
            candidate = rng.permutation(classes)
        permutations[candidate.tobytes()] = candidate
    return list(permutations.values())
