"""A few classes for each client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from actors.settings.base import SettingError
from actors.settings.quantities import Count
from sim.kernel.random import stream
from sim.learning.partitions.dealing import (
    ClassPools,
    Labels,
    check_nobody_empty,
    even_sizes,
    rows_by_class,
)
from sim.learning.partitions.partition import Partition, Sampled, more_than_classes


class ClassesPerClient(Sampled):
    """Each client has samples of a few classes, drawn at random."""

    kind: Literal["classes-per-client"]
    classes: Count
    """Classes of each client."""

    def misfits(self, clients: int, classes: int, data: str) -> Iterator[SettingError]:
        if self.classes > classes:
            yield more_than_classes("classes", self.classes, classes, data)

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Each client owns `classes` classes drawn at random (the non-iid setting of SCooL).

        `samples_per_client` are spread evenly over them; without it, a class is split evenly over those who
        own it. A class that nobody drew is not used. Tested on all test samples of the own classes.
        """
        pools = ClassPools(labels, seed)
        owned = [
            np.sort(
                stream(seed, "partition", "classes", i).choice(labels.classes, self.classes, replace=False)
            )
            for i in range(clients)
        ]
        if self.samples_per_client is None:
            parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
            for label in range(labels.classes):
                owners = [i for i in range(clients) if label in owned[i]]
                for owner, rows in zip(
                    owners, np.array_split(pools.rows[label], max(1, len(owners))), strict=False
                ):
                    parts[owner].append(rows)
            train = [np.concatenate(part) for part in parts]
        else:
            counts = even_sizes(self.samples_per_client, self.classes)
            train = [
                np.concatenate([pools.take(label, count) for label, count in zip(mine, counts, strict=True)])
                for mine in owned
            ]
        check_nobody_empty(train)
        by_class = rows_by_class(labels.test, labels.classes)
        test = (np.sort(np.concatenate([by_class[label] for label in mine])) for mine in owned)
        return Partition(tuple(np.sort(rows) for rows in train), tuple(test))
