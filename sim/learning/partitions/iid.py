"""Every client from the same distribution."""

from typing import Literal

import numpy as np

from sim.kernel.random import stream
from sim.learning.partitions.dealing import Labels, deal
from sim.learning.partitions.partition import Partition, Sampled


class Iid(Sampled):
    """Every client draws from the same distribution."""

    needs_classes = False

    kind: Literal["iid"]

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Uniformly at random: `samples_per_client` each, or equal parts; tested on everything."""
        return deal_at_random(labels, clients, seed, self.samples_per_client)


def deal_at_random(labels: Labels, clients: int, seed: int, samples_per_client: int | None) -> Partition:
    """Deal the shuffled training samples, and validation samples if the data have a part of them.

    Every client is tested on all test samples.
    """
    rows = stream(seed, "partition", "rows").permutation(len(labels.train))
    validation = None
    if count := len(labels.validation):
        mixed = stream(seed, "partition", "validation rows").permutation(count)
        validation = deal(len(labels.train) + mixed, clients, None)
    train = deal(rows, clients, samples_per_client)
    return Partition(train, (np.arange(len(labels.test)),) * clients, validation=validation)
