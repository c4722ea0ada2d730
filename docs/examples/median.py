"""A server takes the coordinate-wise median of the models of its clients (Yin et al. 2018).

A few outliers, whatever their cause, hardly move the median.
"""

from dataclasses import dataclass

import torch

from coterie import RoundClient, RoundServer, RoundSettings, RoundTask, Vector


@dataclass(frozen=True)
class Task(RoundTask):
    params: Vector


@dataclass(frozen=True)
class Trained:
    params: Vector


@dataclass(frozen=True)
class News:
    params: Vector


def median(*models):
    return torch.stack(models).sort(dim=0).values[(len(models) - 1) // 2]


class MedianServer(RoundServer):
    def task(self, client, number):  # self.params is at first the initial model
        return Task(self.params)

    def combine(self, answers, number):  # the return values of `work` by client name
        self.params = self.apply(median, *[answer.params for answer in answers.values()])

    def news(self, client):
        return News(self.params)


class Median(RoundClient):
    class Settings(RoundSettings):
        """Settings: fraction, local_steps or local_epochs, patience, broadcast, rounds."""

    server = MedianServer

    async def work(self, task):
        self.params = await self.trained(task.params)  # evaluations use the client's `params`
        return Trained(self.params)

    def learn(self, news):
        self.params = news.params
