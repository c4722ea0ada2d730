"""IFCA: a server keeps K models; each client selects the model that fits its data best, and trains it.

Ghosh, Chung, Yin, Ramchandran, "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020; the
form that averages models (Algorithm 1, option II). The K models start with different values.
"""

from dataclasses import dataclass

from coterie import Count, RoundClient, RoundServer, RoundSettings, RoundTask, Vector, mix


@dataclass(frozen=True)
class Models(RoundTask):
    models: tuple[Vector, ...]


@dataclass(frozen=True)
class Latest:
    models: tuple[Vector, ...]


@dataclass(frozen=True)
class Trained:
    cluster: int
    params: Vector
    samples: int


class IFCAServer(RoundServer):
    def __init__(self, *given):
        super().__init__(*given)
        self.models = [self.start() for _ in range(self.settings.clusters)]

    def start(self):
        """Return a new initial model: each initial weight has a random sign."""
        signs = self.rng.choice([-1.0, 1.0], size=self.params.shape)
        return self.params * self.vector(signs)

    def task(self, client, number):
        return Models(tuple(self.models))

    def combine(self, answers, number):
        for cluster in range(len(self.models)):
            members = [answer for answer in answers.values() if answer.cluster == cluster]
            total = sum(member.samples for member in members)
            if members:
                self.models[cluster] = mix([(each.samples / total, each.params) for each in members])

    def news(self, client):
        return Latest(tuple(self.models))


class IFCA(RoundClient):
    class Settings(RoundSettings):
        clusters: Count = 2

    server = IFCAServer
    cluster = 0

    async def work(self, task):
        losses = [float(await self.loss(model, on="train")) for model in task.models]
        self.cluster = losses.index(min(losses))
        self.params = await self.trained(task.models[self.cluster])
        return Trained(self.cluster, self.params, self.samples)

    def learn(self, news):
        self.params = news.models[self.cluster]
