"""Equal distribution of samples for all clients, with different numbers of samples."""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import PositiveFloat

from actors.settings.quantities import Count, Within
from sim.kernel.random import stream
from sim.learning.partitions.dealing import Labels, StatedCount, check_min_samples
from sim.learning.partitions.iid import deal_at_random
from sim.learning.partitions.partition import Partition, PartitionSection


class QuantitySkew(PartitionSection):
    """All clients draw from the same distribution; their sample counts follow a Dirichlet distribution."""

    needs_classes = False

    kind: Literal["quantity"]
    alpha: Annotated[PositiveFloat, Within(0.001, 1_000_000)]
    """Concentration: with a small value, few clients have nearly all samples; a large one gives equal
    counts."""
    min_samples: Count = 2
    """Smallest number of training samples of a client."""

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Deal all samples at random: `min_samples` to each client, and the rest by shares from Dir(alpha).

        This is the quantity skew of Li et al. (2022), except that they deal all samples by shares, and redraw
        the shares until each client has `min_samples`. Clients are tested on all test samples.
        """
        check_min_samples(
            StatedCount("data.partition.min_samples", self.min_samples), clients, len(labels.train)
        )
        shares = stream(seed, "partition", "quantities").dirichlet(np.full(clients, self.alpha))
        others = len(labels.train) - clients * self.min_samples
        ends = np.rint(np.cumsum(shares) * others).astype(int) + self.min_samples * np.arange(1, clients + 1)
        rows = stream(seed, "partition", "rows").permutation(len(labels.train))
        train = tuple([np.sort(part) for part in np.split(rows, ends[:-1])])
        return replace(deal_at_random(labels, clients, seed, None), train=train)
