"""Federated averaging of the largest changes only: top-k with error feedback.

Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018. Of its change a client sends the k
numbers that are farthest from 0, and their places; what it has not sent it adds to the next change. A message
counts as many bytes as these take: 8 for each number.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from coterie import Assignment, GlobalModel, RoundClient, RoundServer, RoundSettings, Vector, mix


@dataclass(frozen=True)
class Changes:
    values: Vector
    places: Vector
    samples: int


def largest(change, memory, k):
    """The k largest numbers of the change and of what is owed, their places, and what is owed from now on."""
    total = change + memory
    places = total.abs().topk(k).indices
    return total[places], places.to(torch.int32), total.scatter(0, places, 0.0)


def placed(values, places, width):
    return torch.zeros(width).scatter(0, places.long(), values)


class TopKServer(RoundServer):
    def task(self, client, number):
        return Assignment(self.params, number)

    def combine(self, answers, number):
        total = sum(answer.samples for answer in answers.values())
        [width] = self.params.shape
        changes = [
            (answer.samples / total, self.apply(placed, answer.values, answer.places, width=width))
            for answer in answers.values()
        ]
        self.params = self.params + mix(changes)

    def news(self, client):
        return GlobalModel(self.params)


class TopK(RoundClient):
    class Settings(RoundSettings):
        share: Annotated[float, Field(gt=0, le=1)] = 0.05

    server = TopKServer
    memory = None

    async def work(self, task):
        self.params = await self.trained(task.params)
        change = self.params - task.params
        memory = 0 * change if self.memory is None else self.memory
        k = max(1, round(self.settings.share * change.shape[0]))
        values, places, self.memory = self.apply(largest, change, memory, k=k)
        return Changes(values, places, self.samples)

    def learn(self, news):
        self.params = news.params
