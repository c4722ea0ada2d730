"""pFedMe: each client's personal model is pulled towards a common model, which follows it (Moreau envelopes).

Dinh, Tran and Nguyen, "Personalized federated learning with Moreau envelopes" (NeurIPS 2020), algorithm 1:

    min_w 1/N sum_i F_i(w),    F_i(w) = min_theta f_i(theta) + lambda/2 ||theta - w||^2

    each round: w_i <- w for all clients i
                R times: theta_i <- an approximate minimizer of f_i(theta) + lambda/2 ||theta - w_i||^2
                         w_i     <- w_i - eta lambda (w_i - theta_i)    (lambda (w - theta) is F_i's gradient)
                w <- (1 - beta) w + beta mean_i w_i, over the sampled clients i

theta_i is client i's personal model, by which it is evaluated; w is also measured. R is `local_steps` (or
`local_epochs` times the batches of an epoch), and theta_i comes from K steps of SGD with the scenario's
learning rate. In each round, they first start from w_i, then from the last theta_i, as in the authors' code.

The paper's text was not available: this follows general knowledge of it. The K steps of an iteration use one
batch. With `fraction` below 1 all clients train in a round; those that are not sampled keep their w_i, and
report only that they have trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, model_validator

from actors.settings.base import SettingError
from actors.settings.quantities import Count, PositiveWeight, Weighing
from protocols.framework.requirements import ProtocolSettings, Requirement, plain_sgd_requirements
from protocols.framework.search_space import LOCAL_STEPS, OneOf, Range, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.shared.server_rounds import (
    Contribution,
    RoundClient,
    RoundServer,
    RoundSettings,
    RoundTask,
    averaged,
)


@dataclass(frozen=True)
class OwnTask(RoundTask):
    """Task to update the personal model from these parameters, and to report when this is done."""

    params: Vector
    round: int


@dataclass(frozen=True)
class Done:
    """Report that the personal model is updated."""


class PFedMeSettings(RoundSettings):
    """Average the models towards which the clients' personal models are pulled."""

    strength: PositiveWeight = 15.0
    """Pull lambda of a personal model towards the common model."""
    outer_rate: PositiveWeight = 0.005
    """Rate eta at which w_i follows the personal model in each of the R iterations; at most 1/`strength`."""
    personal_steps: Count = 5
    """Number K of steps of SGD towards theta_i in each of the R iterations."""
    server_mixing: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Step beta of the server, as a share of the distance to the average of its clients."""
    weights: Weighing = "equal"
    """Weights of clients in the average: by their numbers of samples, or equal (paper)."""

    @model_validator(mode="after")
    def _stays_between(self) -> PFedMeSettings:
        if self.outer_rate * self.strength > 1:
            problem = (
                f"must be at most 1 / strength = {1 / self.strength:g}; with a larger rate, a client's copy "
                "of the common model would move past its personal model"
            )
            raise SettingError("outer_rate", self.outer_rate, problem)
        return self


class PFedMeServer(RoundServer):
    """Server that moves towards the average of its clients."""

    settings: PFedMeSettings
    sampled: frozenset[str] = frozenset()
    """Clients with models that count in this round."""

    def sample(self) -> list[str]:
        """Return all clients: all of them update their personal models."""
        self.sampled = frozenset(super().sample())
        return list(self.peers)

    def task(self, client: str, number: int) -> RoundTask:
        return super().task(client, number) if client in self.sampled else OwnTask(self.params, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        found = {client: answer for client, answer in answers.items() if isinstance(answer, Contribution)}
        if found:
            beta, mean = self.settings.server_mixing, averaged(found, self.settings.weights)
            self.params = mix([(1 - beta, self.params), (beta, mean)])


class PFedMe(RoundClient):
    """Client with a personal model and the common model."""

    Settings = PFedMeSettings
    search_space = SearchSpace(
        "strengths up to twice coterie's default 15; outer_rate as a share of its limit 1 / strength",
        {
            "strength": Range(0.1, 30.0, log=True),
            "outer_rate": Range(0.02, 1.0, log=True, over="strength"),
            "personal_steps": OneOf((1, 2, 5)),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: PFedMeSettings
    server = PFedMeServer
    personal: Vector | None = None
    """Personal model theta_i; None before the first round of this session."""

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return plain_sgd_requirements("finds personal models by SGD")

    async def work(self, task: Any) -> object:
        answer = await super().work(task)
        return Done() if isinstance(task, OwnTask) else answer

    async def trained(self, start: Vector) -> Vector:
        """Return w_i after the R iterations of a round."""
        settings = self.settings
        follow = settings.outer_rate * settings.strength
        personal = moved = start
        trains = self.compute.steps_left > 0
        for _ in range(self.steps_of_a_round):
            personal = personal + await self.train(
                settings.personal_steps,
                start=personal,
                proximal=[(settings.strength, moved)],
                on=self.batch(),
            )
            moved = mix([(1 - follow, moved), (follow, personal)])
        if trains:  # otherwise the budget is exhausted, and the last personal model stays
            self.personal = personal
        return moved

    def evaluated(self) -> Mapping[str, Vector]:
        return {"personal": self.personal or self.params, "common": self.params}
