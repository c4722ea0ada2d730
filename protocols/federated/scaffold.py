"""SCAFFOLD: clients correct their steps by the difference between the others' gradients and their own.

Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic controlled averaging for federated
learning" (2020), algorithm 1 with option II. The server has x and c, client i its c_i, initially 0:

    each round, for the clients i in S:  y_i <- x;  K times: y_i <- y_i - eta (g_i(y_i) - c_i + c)
                                         c_i+ <- c_i - c + (x - y_i)/(K eta)
    x <- x + eta_g/|S| sum_i (y_i - x);    c <- c + 1/N sum_i (c_i+ - c_i);    c_i <- c_i+

The correction is the gradient of 1/2 ||y - c_i||^2 - 1/2 ||y - c||^2. N counts the clients that are
believed to be up. A task and its answer are twice as large as in `fedavg`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actors.settings.quantities import PositiveWeight
from protocols.framework.requirements import (
    ProtocolSettings,
    Requirement,
    constant_rate_requirement,
    plain_sgd_requirements,
)
from protocols.framework.search_space import LOCAL_STEPS, Range, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.shared.server_rounds import RoundClient, RoundServer, RoundSettings, RoundTask


@dataclass(frozen=True)
class ControlledTask(RoundTask):
    """Task to train from these parameters, corrected by the server's control variate c."""

    params: Vector
    control: Vector
    round: int


@dataclass(frozen=True)
class ControlledUpdate:
    """Changes y_i - x and c_i+ - c_i."""

    update: Vector
    control: Vector


class ScaffoldSettings(RoundSettings):
    """Average updates of clients that correct each step by the others' gradients minus their own."""

    server_rate: PositiveWeight = 1.0
    """Step eta_g of the server along the mean of the updates."""


class ScaffoldServer(RoundServer):
    """Server that moves by the mean update, and keeps the mean of the clients' control variates."""

    settings: ScaffoldSettings

    def setup(self) -> None:
        self.control = self.params - self.params

    def task(self, client: str, number: int) -> RoundTask:
        return ControlledTask(self.params, self.control, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        share = self.settings.server_rate / len(answers)
        of_all = 1 / max(len(self.peers), len(answers))
        self.params = mix([(1.0, self.params), *[(share, each.update) for each in answers.values()]])
        self.control = mix([(1.0, self.control), *[(of_all, each.control) for each in answers.values()]])


class Scaffold(RoundClient):
    """Client with a control variate."""

    Settings = ScaffoldSettings
    search_space = SearchSpace(
        "server rates from a tenth of coterie's default 1 to its double; the paper's text was not available",
        {
            "server_rate": Range(0.1, 2.0, log=True),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: ScaffoldSettings
    server = ScaffoldServer

    def setup(self) -> None:
        self.control = self.params - self.params  # c_i

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        problem = "treats a step as the learning rate times the gradient"
        return (*plain_sgd_requirements(problem), constant_rate_requirement(problem))

    async def work(self, task: ControlledTask) -> ControlledUpdate:
        self.params, steps = task.params, self.steps_of_a_round
        done = min(steps, self.compute.steps_left)
        correction = [(1.0, self.control), (-1.0, task.control)]
        update = await self.train(steps, start=task.params, proximal=correction, fresh_optimizer=True)
        if not done:  # the budget is exhausted
            return ControlledUpdate(update, update)
        gradient = self.trainable(update) * (-1.0 / (done * self.compute.learning_rate))
        change = gradient - task.control
        self.control = self.control + change
        return ControlledUpdate(update, change)
