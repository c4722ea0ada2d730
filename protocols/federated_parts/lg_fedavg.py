"""LG-FedAvg: each client learns its own representation; a server averages the classifiers on top of it.

Liang, Liu, Ziyin, Salakhutdinov and Morency, "Think locally, act globally: Federated learning with local and
global representations" (2020), algorithm 1, with client i's local representation l_i and the global g:

    warm-up:    rounds of federated averaging of whole models (`warm_up`)
    each round: g_i <- g for the sampled clients i
                (l_i, g_i) <- E local epochs on the loss of g_i(l_i(x)), of both at once
                g <- sum_i n_i g_i / sum_i n_i

l is the backbone, g the head. Without a warm-up, as in the algorithm, only heads are sent, backbones may
differ, and the rounds are as in FedSim. The authors' public code starts with a model that federated averaging
has trained: here, `warm_up` rounds of federated averaging. After them, each sampled client gets the last
global model once, and continues with that model's backbone as its own.

Differences from the paper: no auxiliary loss on the representation (classification needs none), and no
ensemble of all local models for unknown devices: a newcomer trains its own, with the average head.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actors.settings.quantities import CountOrZero
from protocols.framework.requirements import ProtocolSettings, Requirement
from protocols.framework.search_space import LOCAL_STEPS, OneOf, SearchSpace
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
    """Task to train from these parameters, and keep the resulting backbone."""

    params: Vector
    round: int


@dataclass(frozen=True)
class NotBegun:
    """Answer of a client that no longer has its personal backbone of an earlier session."""


class LGFedAvgSettings(AveragedPartSettings):
    """Average the heads of the clients, after a warm-up with whole models."""

    warm_up: CountOrZero = 0
    """Rounds of federated averaging before the averages of heads."""


class LGFedAvgServer(AveragedPartServer):
    """Server that averages whole models in the warm-up, and then only heads."""

    settings: LGFedAvgSettings

    def setup(self) -> None:
        self.started: set[str] = set()  # clients with a personal backbone; never iterated over

    def task(self, client: str, number: int) -> RoundTask:
        if number < self.settings.warm_up:
            return Assignment(self.params, number)
        if self.settings.warm_up and client not in self.started:
            return FirstLocalTask(self.params, number)
        return super().task(client, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        if number < self.settings.warm_up:
            self.params = averaged(answers, self.settings.weights)
            return
        started = {name: answer for name, answer in answers.items() if not isinstance(answer, NotBegun)}
        self.started = (self.started - answers.keys()) | started.keys()
        if started:
            super().combine(started, number)

    def news(self, client: str) -> object | None:
        """Return the average of heads; before the first one, the last average of the warm-up, if any."""
        if self.average is None and self.settings.warm_up:
            return GlobalModel(self.params)
        return super().news(client)


class LGFedAvg(RoundClient):
    """Client that shares its head, after a warm-up in which it shares the whole model."""

    Settings = LGFedAvgSettings
    search_space = SearchSpace(
        "rounds of warm-up from none to 50; the paper's text was not available",
        {
            "warm_up": OneOf((0, 10, 50)),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: LGFedAvgSettings
    server = LGFedAvgServer
    parts = ()
    heterogeneous = True
    local = False
    """True if this client has started a personal backbone in this session."""

    def setup(self) -> None:
        self.head = SharedPart(self, "head")

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        assert isinstance(settings, LGFedAvgSettings)
        if not settings.warm_up:
            return ()
        alike = "averages whole models in a warm-up, so all clients need the same backbone; name one"
        return (Requirement("model.backbones", lambda names: len(names) == 1, alike),)

    async def work(self, task: Any) -> object:
        if isinstance(task, Assignment):
            self.params = task.params
            return Contribution(await self.trained(task.params), self.samples)
        if isinstance(task, FirstLocalTask):
            if not self.local:  # otherwise its first answer was lost
                self.params = task.params
            self.local = True
            task = PartTask(None, task.round)
        if self.settings.warm_up and not self.local:
            self.params = self.params  # until it gets a model, it is evaluated by its initial one
            return NotBegun()
        return await self.head.work(task)

    def learn(self, news: Any) -> None:
        if not isinstance(news, GlobalModel):
            self.head.take(news.part)
        elif not self.local:  # otherwise a later message overtook this one
            self.params = news.params
