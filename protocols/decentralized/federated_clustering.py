"""Federated clustering: each client descends along the mean of those gradients that are like its own.

Werner, He, Karimireddy, Jordan and Jaggi, "Provably personalized and robust federated learning" (2023),
"FC" in CoBo's tables, which give it the true number K of clusters. In each round client i sends its model x_i
to all others, each of which returns its own gradient at x_i, and

    v <- g_i(x_i);  repeat: v <- (1/n) sum_j (g_j(x_i) if ||g_j(x_i) - v|| <= tau else v)
    x_i <- x_i - eta v

tau is the distance of the (n/K)-th nearest gradient, itself included: as many as a cluster has on average. It
costs n^2 gradients in a round. The learned graph has a weight of 1 for each gradient within tau at last.

The paper's text was not at hand: this follows general knowledge of it, and tau, which it leaves to tuning,
is ours. Differences to it: a gradient is what `local_steps` of training change, and they count as steps.
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
from protocols.framework.vectors import Scalar, Vector


@dataclass(frozen=True)
class ReturnedGradient:
    """The update of the receiver's model of this round by the sender's data."""

    update: Vector


def threshold_clustering(mask: Tensor, *points: Tensor, within: int, sweeps: int) -> tuple[Tensor, ...]:
    """The centre [P] of the `within` of n `points` [P] nearest to it, and for each whether it is one.

    mask [P]: 1 for what distances are made of, 0 for what does not count.
    The search begins at the first point. Each sweep moves the centre as if all others were where it is, so by
    within/n of the way.
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
    """Everybody returns its gradient at everybody's model; those like the own one are followed."""

    changing = ("local_steps", "sweeps")

    clusters: Count = 2
    """Number of clusters (K): of n gradients the n/K nearest ones count, rounded up."""
    sweeps: Count = 10
    """Sweeps of the threshold clustering in a round."""
    local_steps: Count = 1
    """Training steps of each model in a round."""
    patience: PositiveDuration = default("1 min")
    """How long a silent neighbour is waited for at most, and asked again whenever it is overdue."""


class FederatedClustering(Client):
    """A client that collects its gradients from everybody, and keeps those like its own."""

    Settings = FederatedClusteringSettings
    settings: FederatedClusteringSettings
    collected = (RoundModel, ReturnedGradient)
    two_way = True

    def begin(self) -> None:
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
