"""Federated clustering: each client descends along the mean of the gradients similar to its own.

Werner, He, Karimireddy, Jordan and Jaggi, "Provably personalized and robust federated learning" (2023),
"FC" in CoBo's tables, which give it the true number K of clusters. In each round client i sends its model x_i
to all others, each of which returns its own gradient at x_i, and

    v <- g_i(x_i);  repeat: v <- (1/n) sum_j (g_j(x_i) if ||g_j(x_i) - v|| <= tau else v)
    x_i <- x_i - eta v

tau is the distance of the (n/K)-th nearest gradient, counting the client's own; n/K is the mean size of a
cluster. A round costs n^2 gradients. The learned graph has a weight of 1 for each gradient within tau in the
last repetition (sweep).

The paper's text was not available: this follows general knowledge of it, and tau, which it leaves to tuning,
is coterie's choice. Differences from the paper: a gradient is the change that `local_steps` of training make;
these count as steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from actors.settings.base import default
from actors.settings.quantities import Count, PositiveDuration
from protocols.framework.client import Client
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.rounds import RoundModel, Rounds
from protocols.framework.search_space import LOCAL_STEPS, OneOf, SearchSpace
from protocols.framework.vectors import Scalar, Vector


@dataclass(frozen=True)
class ReturnedGradient:
    """Update of the receiver's model of this round on the sender's data."""

    update: Vector


def threshold_clustering(mask: Tensor, *points: Tensor, within: int, sweeps: int) -> tuple[Tensor, ...]:
    """Return a center [P], found from its `within` nearest points, and which of n points [P] belong to it.

    mask [P]: 1 for values that distances include, 0 for others. The search starts at the first point. Each of
    `sweeps` sweeps sets the center to the mean of n points: its `within` nearest points, and the center
    itself in place of each other point.
    """
    rows = torch.stack(points)
    centre = points[0]
    near = torch.zeros(len(points), dtype=torch.bool)
    for _ in range(sweeps):
        squares = (mask * (rows - centre) ** 2).sum(dim=1)
        near = squares <= squares.sort().values[within - 1]
        centre = torch.where(near[:, None], rows, centre).mean(dim=0)
    return (centre, *near.float().unbind())


class FederatedClusteringSettings(ProtocolSettings):
    """Clients compute gradients at the models of others, and use gradients similar to their own."""

    changing = ("local_steps", "sweeps")

    clusters: Count = 2
    """Number of clusters (K): of n gradients, the nearest n/K count, rounded up."""
    sweeps: Count = 10
    """Sweeps of the threshold clustering in a round."""
    local_steps: Count = 1
    """Training steps of each model in a round."""
    patience: PositiveDuration = default("1 min")
    """Maximum wait for a silent neighbor, which gets repeated requests meanwhile."""


class FederatedClustering(Client):
    """Client that collects gradients at its model from all others, and uses gradients similar to its own."""

    Settings = FederatedClusteringSettings
    search_space = SearchSpace(
        "numbers of clusters of the scenarios in this repository",
        {
            "clusters": OneOf((2, 3, 4, 5)),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: FederatedClusteringSettings
    collected = (RoundModel, ReturnedGradient)
    two_way = True

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.rounds = Rounds(self, self.settings.patience)
        self.followed: dict[str, Scalar] = {}
        self.mask = self.trainable(self.vector(torch.ones(self.params.shape)))

    async def step(self) -> None:
        self.rounds.announce()
        models = await self.rounds.gather()
        partners = [peer for peer in models if self.rounds.is_mutual(peer)]
        start, steps = self.params, self.settings.local_steps
        own = await self.train(steps, start=start, fresh_optimizer=True)
        for peer in partners:
            update = await self.train(steps, start=models[peer].params, fresh_optimizer=True)
            self.rounds.tell(peer, ReturnedGradient(update))
        returned = await self.rounds.replies(ReturnedGradient, partners)
        points = [own, *[each.update for each in returned.values()]]
        within = -(-len(points) // self.settings.clusters)
        centre, _, *near = self.apply(
            threshold_clustering, self.mask, *points, within=within, sweeps=self.settings.sweeps
        )
        self.followed = dict(zip(returned, near, strict=True))
        self.params = self.params + centre

    def weights(self) -> Mapping[str, float | Scalar]:
        return {peer: self.followed[peer] for peer in self.peers if peer in self.followed}
