"""Oort: clients with large losses that answer in time train more often, and some unknown clients are tried.

Lai, Zhu, Madhyastha, Chowdhury, "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI
2021, algorithm 1, without its pacer. Unknown clients are tried at random.
"""

from dataclasses import dataclass
from math import log, sqrt

from coterie import Duration, PositiveWeight, RoundClient, RoundServer, RoundSettings, Share, Vector


@dataclass(frozen=True)
class Trained:
    params: Vector
    samples: int
    utility: float


class OortServer(RoundServer):
    def setup(self):
        self.known = {}  # by client: utility, seconds of its last answer, number of that round

    async def answer(self, client, number):
        start, answer = self.now, await super().answer(client, number)
        if answer is not None:
            self.known[client] = answer.utility, self.now - start, number + 1
        return answer

    def utility(self, client):
        utility, seconds, last = self.known[client]
        value = utility + sqrt(0.1 * log(self.number + 1) / last)
        late = max(1.0, seconds / self.settings.preferred)
        return value * late**-self.settings.penalty

    def sample(self):
        count = max(1, round(self.settings.fraction * len(self.peers)))
        unknown = [client for client in self.peers if client not in self.known]
        ranked = sorted(set(self.peers) - set(unknown), key=lambda each: (-self.utility(each), each))
        new = min(len(unknown), max(count - len(ranked), round(self.settings.explored * count)))
        tried = [unknown[k] for k in self.rng.choice(len(unknown), size=new, replace=False)]
        if not (best := ranked[: count - new]):
            return tried
        pool = [each for each in ranked if self.utility(each) >= 0.95 * self.utility(best[-1])]
        total = sum(map(self.utility, pool))
        shares = [self.utility(each) / total for each in pool]
        return tried + [pool[k] for k in self.rng.choice(len(pool), size=len(best), replace=False, p=shares)]


class Oort(RoundClient):
    class Settings(RoundSettings):
        preferred: Duration = "5 s"
        penalty: PositiveWeight = 2.0
        explored: Share = 0.3

    server = OortServer

    async def work(self, task):
        losses = (await self.loss(task.params, on="train", reduction="none")).numpy()
        self.params = await self.trained(task.params)
        utility = sqrt(self.samples * float((losses.astype(float) ** 2).sum()))
        return Trained(self.params, self.samples, utility)
