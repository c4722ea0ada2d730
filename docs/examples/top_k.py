"""Federated averaging of the largest changes only: top-k with error feedback.

Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018. A client sends the k values of its
change that are farthest from 0, and their positions. It adds all other values to the next change. A message
has the size of its contents: 8 bytes for each value with its position.
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
    """Return the k largest values of change plus memory, their positions, and the new memory."""
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
