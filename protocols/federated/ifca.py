"""IFCA: a server keeps K models, and each client trains the model that fits its data best.

Ghosh, Chung, Yin and Ramchandran, "An efficient framework for clustered federated learning" (2020), algorithm
1 with model averaging (option II):

    each round: S <- random clients
                j_i <- argmin_j F_i(theta_j)                          for i in S, on all its training samples
                x_i <- E local epochs from theta_{j_i}
                theta_j <- average of the x_i with j_i = j               a model without clients is unchanged

The K models start with different values (`protocols.shared.several_models`). A client is evaluated by the
last model of its cluster that it received; a client that was never sampled, but gets all models
(`broadcast`), finds its own as above. The clients' choices are recorded as the metric `cluster`.

Differences from the paper: averages are weighted by samples; the paper also restarts from other random
models; here, run other seeds instead. All K models are sent to each sampled client, as in the paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocols.framework.search_space import LOCAL_STEPS, OneOf, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.shared.judging import model_losses
from protocols.shared.server_rounds import RoundClient
from protocols.shared.several_models import (
    LatestModels,
    SeveralModels,
    SeveralModelsServer,
    SeveralModelsSettings,
)


@dataclass(frozen=True)
class ClusterMember:
    """Cluster of a client, its trained model, and its number of samples."""

    cluster: int
    params: Vector
    samples: int


class IFCASettings(SeveralModelsSettings):
    """Keep the models of several clusters; each client trains the model that fits its data best."""


class IFCAServer(SeveralModelsServer):
    """Server that averages the trained models of the members of each cluster."""

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        self.models = tuple([self.average(answers, k) for k in range(len(self.models))])

    def average(self, answers: Mapping[str, Any], cluster: int) -> Vector:
        """Return the new model of a cluster; the old one if no client has chosen it."""
        members = [answer for answer in answers.values() if answer.cluster == cluster]
        total = sum([member.samples for member in members])
        if not members:
            return self.models[cluster]
        return mix([(member.samples / total, member.params) for member in members])


class IFCA(RoundClient):
    """Client that finds its cluster by its losses."""

    Settings = IFCASettings
    search_space = SearchSpace(
        "numbers of clusters of the scenarios in this repository",
        {
            "models": OneOf((2, 3, 4, 5)),
            "local_steps": LOCAL_STEPS,
        },
    )
    server = IFCAServer
    cluster = 0
    """Number of the model that fits the client's data best."""
    sampled = False
    """True if the client was sampled, in this session or an earlier session with a kept state."""

    async def work(self, task: SeveralModels) -> ClusterMember:
        self.sampled = True
        await self.choose(task)
        return ClusterMember(self.cluster, await self.trained(self.params), self.samples)

    async def choose(self, received: SeveralModels | LatestModels) -> None:
        """Choose the model with the lowest loss."""
        losses = await model_losses(self, received.models, "train")
        self.cluster = losses.index(min(losses))
        self.params = received.models[self.cluster]
        self.observe("cluster", self.cluster)

    def learn(self, news: LatestModels) -> None:
        if self.sampled:
            self.params = news.models[self.cluster]
        else:
            self.spawn(self.choose(news))
