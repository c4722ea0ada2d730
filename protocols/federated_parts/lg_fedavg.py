"""LG-FedAvg: each client learns a representation of its own; what classifies it is averaged by a server.

Liang, Liu, Ziyin, Salakhutdinov and Morency, "Think locally, act globally: Federated learning with local and
global representations" (2020), algorithm 1, with client i's local representation l_i and the global g:

    warm-up:    rounds of federated averaging of whole models (`warm_up`)
    each round: g_i <- g for the sampled clients i
                (l_i, g_i) <- E local epochs on the loss of g_i(l_i(x)), of both at once
                g <- sum_i n_i g_i / sum_i n_i

l is the backbone, g the head. Without a warm-up, as in the algorithm, only heads travel, backbones may
differ, and the rounds are those of FedSim. The authors' public code begins with a model that federated
averaging has trained: as many rounds of it as `warm_up` says, after which each sampled client gets the last
global model once and keeps its backbone from then on.

Differences to the paper: no auxiliary loss on the representation (none is needed for classification), and no
ensemble of all local models for devices that are not known: a newcomer trains its own, on the average head.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actors.settings.quantities import CountOrZero
from protocols.framework.requirements import ProtocolSettings, Requirement
from protocols.framework.vectors import Vector
from protocols.shared.averaged_parts import AveragedPartServer, AveragedPartSettings, PartTask, SharedPart
from protocols.shared.server_rounds import (
    Assignment,
    Contribution,
    GlobalModel,
    RoundClient,
    RoundTask,
    averaged,
)


@dataclass(frozen=True)
class FirstLocalTask(RoundTask):
    """Train on from these parameters, and keep the backbone that comes of it."""

    params: Vector
    round: int


@dataclass(frozen=True)
class NotBegun:
    """The answer of a client that has no backbone of its own: in a life before this one it had."""


class LGFedAvgSettings(AveragedPartSettings):
    """A server averages the heads of its clients, after a warm-up with whole models."""

    warm_up: CountOrZero = 0
    """Rounds of federated averaging before."""


class LGFedAvgServer(AveragedPartServer):
    """Federated averaging first, if so, then averages of heads."""

    settings: LGFedAvgSettings

    def begin(self) -> None:
        self.begun: set[str] = set()  # clients with a backbone of their own; never iterated over

    def task(self, client: str, number: int) -> RoundTask:
        if number < self.settings.warm_up:
            return Assignment(self.params, number)
        if self.settings.warm_up and client not in self.begun:
            return FirstLocalTask(self.params, number)
        return super().task(client, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        if number < self.settings.warm_up:
            self.params = averaged(answers, self.settings.weights)
            return
        begun = {name: answer for name, answer in answers.items() if not isinstance(answer, NotBegun)}
        self.begun = (self.begun - answers.keys()) | begun.keys()
        if begun:
            super().combine(begun, number)

    def news(self, client: str) -> object | None:
        """The last average of the warm-up until there is one of heads."""
        if self.average is None and self.settings.warm_up:
            return GlobalModel(self.params)
        return super().news(client)


class LGFedAvg(RoundClient):
    """A client that shares its head, after a warm-up in which it shares all."""

    Settings = LGFedAvgSettings
    settings: LGFedAvgSettings
    server = LGFedAvgServer
    parts = ()
    heterogeneous = True
    local = False
    """Whether it has begun a backbone of its own, in this life."""

    def begin(self) -> None:
        self.head = SharedPart(self, "head")

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        assert isinstance(settings, LGFedAvgSettings)
        if not settings.warm_up:
            return ()
        alike = "whole models are averaged in a warm-up, so that all clients need the same backbone; name one"
        return (Requirement("model.backbones", lambda names: len(names) == 1, alike),)

    async def work(self, task: Any) -> object:
        if isinstance(task, Assignment):
            self.params = task.params
            return Contribution(await self.trained(task.params), self.samples)
        if isinstance(task, FirstLocalTask):
            if not self.local:  # else its first answer did not get there
                self.params = task.params
            self.local = True
            task = PartTask(None, task.round)
        if self.settings.warm_up and not self.local:
            self.params = self.params  # until it is sent a model it is judged by the one that it began with
            return NotBegun()
        return await self.head.work(task)

    def learn(self, news: Any) -> None:
        if not isinstance(news, GlobalModel):
            self.head.take(news.part)
        elif not self.local:  # else it was overtaken on its way
            self.params = news.params
