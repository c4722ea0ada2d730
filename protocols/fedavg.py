"""Federated averaging: a server sends the global model to clients, they train, it averages what comes back.

McMahan et al., "Communication-efficient learning of deep networks from decentralized data" (2017),
algorithm 1:

    each round: S <- max(1, floor(C m)) random clients of m
                x_i <- E local epochs from x, for i in S
                x <- sum_{i in S} n_i x_i / sum_{i in S} n_i

A client that has not answered after `patience` is left out of the round. A client's model, as it is
evaluated, is the last global model that it received.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from actors.message import PeerUnavailable, RemoteError
from protocols import learner
from protocols import settings as base
from protocols.settings import PositiveDuration, default
from protocols.vectors import Vector, mix


@dataclass(frozen=True)
class Assignment:
    """Train from these parameters."""

    params: Vector
    round: int


@dataclass(frozen=True)
class Contribution:
    """A client's trained parameters and the number of samples they were trained on."""

    params: Vector
    samples: int


@dataclass(frozen=True)
class GlobalModel:
    """The new global model, for clients that did not take part in the round."""

    params: Vector


@dataclass(frozen=True)
class Ready:
    """A client has nothing to do, and has been missed by the server, or overlooked."""


class FedAvgSettings(learner.Settings):
    """A server averages what its clients have trained."""

    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share C of the clients that train in a round; at least one does."""
    local_steps: PositiveInt | None = None
    """Training steps of a client in a round, instead of `local_epochs`."""
    local_epochs: PositiveInt = 1
    """Passes of a client over its own samples in a round (E); each drops the last incomplete batch."""
    patience: PositiveDuration = default("1 min")
    """How long the server waits for a client's answer; then the round goes on without it."""
    broadcast: Literal["sampled", "all"] = "sampled"
    """Who gets the new model: those that train next, as in the paper, or also all others after each round."""


class FedAvgServer(learner.Server):
    """Runs the rounds."""

    settings: FedAvgSettings

    async def run(self) -> None:
        number = 0
        while True:
            if not self.peers:
                await self.sleep(self.settings.patience)
                continue
            await self.round(number)
            number += 1

    async def on_message(self, message: object, sender: str) -> None:
        """A client is `Ready`: to hear from it was enough to count it in again."""

    async def round(self, number: int) -> None:
        """One round with the clients that are believed to be up."""
        chosen = self.sample()
        answers = await asyncio.gather(*[self.contribution(client, number) for client in chosen])
        received = [answer for answer in answers if answer is not None]
        if received:
            total = sum([answer.samples for answer in received])
            self.params = mix([(answer.samples / total, answer.params) for answer in received])
        if self.settings.broadcast == "all":
            for client in self.peers:
                self.tell(client, GlobalModel(self.params))

    def sample(self) -> list[str]:
        """The clients of a round."""
        peers = self.peers
        # Rounded before it is cut off: 0.29 times 100 is 28.999999999999996.
        count = max(1, math.floor(round(self.settings.fraction * len(peers), 9)))
        if count == len(peers):
            return list(peers)
        return [peers[int(index)] for index in self.rng.choice(len(peers), size=count, replace=False)]

    async def contribution(self, client: str, number: int) -> Contribution | None:
        """What one client sends back; None if it does not in time."""
        try:
            return await self.ask(client, Assignment(self.params, number), timeout=self.settings.patience)
        except (PeerUnavailable, RemoteError):
            self.suspect(client)
            return None


class FedAvg(learner.Learner):
    """A client of federated averaging: works only when asked."""

    Settings = FedAvgSettings
    settings: FedAvgSettings
    known = False
    """Whether a server has given it something to do, in this life."""
    training = False

    @classmethod
    def servers(
        cls, settings: base.Settings, clients: Sequence[str], clusters: Sequence[int] | None
    ) -> list[learner.ServerPlan]:
        return [learner.ServerPlan("server", FedAvgServer, tuple(clients))]

    async def run(self) -> None:
        """Nothing by itself, but to make itself known: the message that it is there may have been lost."""
        self.known = False
        while True:
            await self.sleep(self.settings.patience)
            if self.known:
                return
            for server in self.peers:
                self.tell(server, Ready())

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case Assignment(params):
                self.known = True
                self.params = params
                steps = self.settings.local_steps or self.settings.local_epochs * self.compute.steps_per_epoch
                self.training = True
                try:
                    update = await self.train(steps, fresh_optimizer=True)
                finally:
                    self.training = False
                self.finish_iteration()
                return Contribution(params + update, self.samples)
            case GlobalModel(params):
                self.params = params
        return None

    def heard(self, message: object, sender: str) -> bool:
        done = super().heard(message, sender)
        if isinstance(message, learner.AreYouThere) and not self.training:
            self.tell(sender, Ready())  # else nobody would hear from a client that only works when asked
        return done
