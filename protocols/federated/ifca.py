"""IFCA: a server keeps K models, and each client trains the one that fits its data best.

Ghosh, Chung, Yin and Ramchandran, "An efficient framework for clustered federated learning" (2020), algorithm
1 with model averaging (option II):

    each round: S <- random clients
                j_i <- argmin_j F_i(theta_j)                          for i in S, on all its training samples
                x_i <- E local epochs from theta_{j_i}
                theta_j <- average of the x_i with j_i = j            a model nobody has chosen stays as it is

The K models start apart (`protocols.shared.several_models`). A client is judged by the last model of its
cluster that it received; one that was never sampled, and is told all (`broadcast`), finds its own as above.
What clients choose is observed as `cluster`.

Differences to the paper: averages are weighed by samples; its restarts from other random models are runs with
other seeds here. All K models travel to each sampled client, as in the paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocols.framework.vectors import Vector, mix
from protocols.shared.judging import losses_of
from protocols.shared.server_rounds import RoundClient
from protocols.shared.several_models import (
    LatestModels,
    SeveralModels,
    SeveralModelsServer,
    SeveralModelsSettings,
)


@dataclass(frozen=True)
class ClusterMember:
    """Which cluster a client belongs to, its trained model of it, and its number of samples."""

    cluster: int
    params: Vector
    samples: int


class IFCASettings(SeveralModelsSettings):
    """A server keeps the models of several clusters, and each client trains the one that fits it best."""


class IFCAServer(SeveralModelsServer):
    """Averages what the members of each cluster have trained."""

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        self.models = tuple([self.average(answers, k) for k in range(len(self.models))])

    def average(self, answers: Mapping[str, Any], cluster: int) -> Vector:
        """The new model of a cluster; the old one if nobody has chosen it."""
        members = [answer for answer in answers.values() if answer.cluster == cluster]
        total = sum([member.samples for member in members])
        if not members:
            return self.models[cluster]
        return mix([(member.samples / total, member.params) for member in members])


class IFCA(RoundClient):
    """A client that finds its cluster by its losses."""

    Settings = IFCASettings
    server = IFCAServer
    cluster = 0
    """Which model fits it best."""
    sampled = False
    """Whether it was, in this life or one whose state it has kept."""

    async def work(self, task: SeveralModels) -> ClusterMember:
        self.sampled = True
        await self.choose(task)
        return ClusterMember(self.cluster, await self.trained(self.params), self.samples)

    async def choose(self, received: SeveralModels | LatestModels) -> None:
        """Take the model of the least loss."""
        losses = await losses_of(self, received.models, "train")
        self.cluster = losses.index(min(losses))
        self.params = received.models[self.cluster]
        self.observe("cluster", self.cluster)

    def learn(self, news: LatestModels) -> None:
        if self.sampled:
            self.params = news.models[self.cluster]
        else:
            self.spawn(self.choose(news))
