"""The four scenarios of MAPL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from actors.settings.base import SettingError
from actors.settings.members import cluster_misfits
from actors.settings.quantities import Count, Within
from sim.kernel.random import stream
from sim.learning.partitions.dealing import (
    ClassPools,
    Labels,
    cluster_members,
    even_sizes,
    membership,
    rows_by_class,
)
from sim.learning.partitions.partition import Partition, PartitionSection, more_than_classes


class MaplClusters(PartitionSection):
    """The four scenarios of MAPL: two clusters, disjoint or overlapping classes, equal or unequal amounts."""

    kind: Literal["mapl"]
    scenario: Annotated[int, Field(ge=1, le=4)]
    """1: disjoint classes; 2: overlapping; 3 and 4: the same with different numbers of samples."""
    images_per_class: Count = 300
    """Training samples per class and client; in scenarios 3 and 4 the largest number."""
    images_per_class_min: Count = 100
    """Smallest number in scenarios 3 and 4."""
    shared_classes: Annotated[int, Field(ge=0, le=100, multiple_of=2)] = 2
    """Classes that neighbouring clusters share in scenarios 2 and 4."""
    test_images_per_class: Count = 15
    """Test samples per class and client."""
    clusters: Annotated[int, Field(ge=2), Within(2, 1_000_000)] = 2
    """Number of clusters."""

    @model_validator(mode="after")
    def _ordered(self) -> MaplClusters:
        if self.scenario >= 3 and self.images_per_class_min > self.images_per_class:
            raise SettingError(
                "images_per_class_min",
                self.images_per_class_min,
                f"must be at most images_per_class ({self.images_per_class})",
            )
        return self

    def misfits(self, clients: int, classes: int, data: str) -> Iterator[SettingError]:
        yield from cluster_misfits("data.partition.clusters", self.clusters, None, clients)
        if self.clusters > classes:
            yield more_than_classes("clusters", self.clusters, classes, data)

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """The four scenarios of MAPL (section 5): clusters of clients with different classes.

        Scenario 1: equal blocks of consecutive classes. Scenario 2: neighbouring blocks overlap in
        `shared_classes` classes (even; 2 as in the paper's figure, classes 0-5 and 4-9; 4 as in the authors'
        code, 0-6 and 3-9). A client owns `images_per_class` of each of its cluster's classes. Scenarios 3 and
        4 are 1 and 2 with a number drawn per client, uniform from `images_per_class_min` to
        `images_per_class`. Tested on `test_images_per_class` of each class, drawn per client. No two clients
        share an image, which the paper leaves open.
        """
        varied = self.scenario in (3, 4)
        cluster_of = membership(even_sizes(clients, self.clusters))
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
            count = (
                self.images_per_class
                if not varied
                else int(rng.integers(self.images_per_class_min, self.images_per_class, endpoint=True))
            )
            train.append(np.sort(np.concatenate([pools.take(label, count) for label in owned[k]])))
            seen = [rng.permutation(by_class[label])[: self.test_images_per_class] for label in owned[k]]
            test.append(np.sort(np.concatenate(seen)))
        return Partition(tuple(train), tuple(test), cluster_of)
