"""Every client from the same distribution, but one with many samples and another with few."""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import PositiveFloat

from actors.settings.quantities import Count, Within
from sim.kernel.random import stream
from sim.learning.partitions.dealing import Labels, check_min_samples
from sim.learning.partitions.iid import deal_at_random
from sim.learning.partitions.partition import Partition, PartitionSection


class QuantitySkew(PartitionSection):
    """Every client draws from the same distribution, and how much is drawn from a Dirichlet distribution."""

    needs_classes = False

    kind: Literal["quantity"]
    alpha: Annotated[PositiveFloat, Within(0.001, 1_000_000)]
    """Concentration: small means that a few clients have nearly all, large that all have the same."""
    min_samples: Count = 2
    """No client has fewer training samples."""

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """All samples, at random; each client has `min_samples`, and of the others a share from Dir(alpha).

        The quantity skew of Li et al. (2022), who draw shares anew until everybody has `min_samples`. Tested
        on everything.
        """
        check_min_samples(self.min_samples, clients, len(labels.train))
        shares = stream(seed, "partition", "quantities").dirichlet(np.full(clients, self.alpha))
        others = len(labels.train) - clients * self.min_samples
        ends = np.rint(np.cumsum(shares) * others).astype(int) + self.min_samples * np.arange(1, clients + 1)
        rows = stream(seed, "partition", "rows").permutation(len(labels.train))
        train = tuple([np.sort(part) for part in np.split(rows, ends[:-1])])
        return replace(deal_at_random(labels, clients, seed, None), train=train)
