"""CGA: no step goes against the gradients that the neighbours find at one's own model.

Esfandiari, Tan, Jiang, Balu, Herron, Hegde and Sarkar, "Cross-gradient aggregation for decentralized learning
from non-IID data" (ICML 2021), algorithm 1. In rounds with a barrier among neighbours, for client i:

    g_ij: gradient of the neighbour j's loss at x_i, on j's data; x_i goes to j, and g_ij comes back
    z_i  = the point nearest to g_ii with <z, g_ij> >= 0 for all neighbours j
    v_i <- beta v_i - eta z_i
    x_i <- sum_j W_ij x_j + v_i                    W: Metropolis-Hastings weights of the topology

z_i solves a quadratic program with as many variables as neighbours, the dual one (as in gradient episodic
memory, Lopez-Paz and Ranzato 2017): z_i = g_ii + sum_j u_j g_ij with the u >= `margin` that minimise |z_i|.
eta is the scenario's learning rate, beta is `momentum`.

Asynchronous: AD-PSGD's exchange with one random neighbour at a time, which answers with its gradient at the
model that it was sent, too; z_i heeds the last such gradient of each neighbour, however old.

Differences to the paper, whose text was not at hand: this follows its abstract, general knowledge, and the
facts of its authors' public code where it must. That code solves the program for each layer, with gradients
multiplied by W_ij and a margin of 0.5, so that neighbours' gradients always count; and it looks ahead by the
momentum (Nesterov). Here the program is that of whole models. `local_steps` above 1 take the sum of several
updates for -eta g_ii; SCooL's authors report that this diverges with five epochs. CompCGA is left out.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from actors.settings.quantities import Weight
from protocols.decentralized.dpsgd import DPSGDSettings
from protocols.framework.client import Client
from protocols.framework.per_peer import PerPeer
from protocols.framework.requirements import ProtocolSettings, Requirement, common_start, plain_sgd
from protocols.framework.rounds import RoundModel, Rounds
from protocols.framework.vectors import Vector
from protocols.shared.averaging import Exchange, PairAveraging, neighbour_mean, neighbour_weights

_STEPS = 150


@dataclass(frozen=True)
class CrossGradient:
    """The sender's gradient at the receiver's model of the round."""

    gradient: Vector


@dataclass(frozen=True)
class CrossExchange(Exchange):
    """An exchange's answer, with the sender's gradient at the model that it was sent."""

    gradient: Vector


def agreeing(own: Tensor, *others: Tensor, margin: float) -> Tensor:
    """The point z [P] nearest to `own` with <z, g> >= 0 for all other g [P]; with a margin, z = own + sum u g
    for the u >= margin that minimise |z|^2.

    By accelerated projected gradient descent on the dual problem (Beck and Teboulle 2009), with the other g
    scaled to length 1; a fixed number of steps, in float64.
    """
    rows = torch.stack(others).double()
    squares = (rows * rows).sum(dim=1)
    # Gradients of 0 forbid nothing: their u stays at the margin.
    scale = torch.where(squares > 0, squares, torch.ones_like(squares)).rsqrt()
    unit = rows * scale[:, None]
    gram, slope, least = unit @ unit.T, unit @ own.double(), margin / scale
    step = 1 / gram.abs().sum(dim=1).max().clamp(min=1.0)  # at most that of the largest eigenvalue
    u = ahead = least
    for k in range(_STEPS):
        before, u = u, torch.maximum(ahead - step * (slope + gram @ ahead), least)
        ahead = u + k / (k + 3) * (u - before)
    return (own + u @ unit).to(own.dtype)


class CGASettings(DPSGDSettings):
    """Train along gradients that no neighbour's gradient contradicts, and average with the neighbours."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """beta: how much of the last change goes on in the next."""
    margin: Weight = 0.0
    """The least factor of a neighbour's gradient: 0 is the projection; the authors' code has 0.5."""


class CrossGradients(Client):
    """Base of both forms of CGA."""

    Settings = CGASettings
    settings: CGASettings
    collected = (RoundModel, CrossGradient)

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return (
            common_start("shared"),
            *plain_sgd("takes single gradients for steps, and has its own momentum"),
        )

    def begin(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.crossed = PerPeer[Vector](self)  # neighbours' gradients at this client's model
        self.velocity: Vector | None = None

    async def local_update(self) -> Vector:
        """v_i, by the cross-gradients that there are."""
        change = await self.train(self.settings.local_steps)
        if self.crossed:
            # Descent along -eta g_ij, so that the margin counts in gradients.
            others = [-self.compute.learning_rate * gradient for gradient in self.crossed.values()]
            change = self.apply(agreeing, change, *others, margin=self.settings.margin)
        if self.velocity is not None and self.settings.momentum:
            change = change + self.settings.momentum * self.velocity
        self.velocity = change
        return change


class CGAInPairs(CrossGradients):
    """AD-PSGD's exchange, in which the peer answers with its gradient at the asker's model, too."""

    def begin(self) -> None:
        super().begin()
        self.pairs = PairAveraging(self, self.settings.patience, self.answered, self.met)

    async def step(self) -> None:
        self.pairs.begin()
        update = await self.local_update()
        self.params = self.params + update

    def met(self, peer: str, answer: Exchange) -> None:
        """Keep the gradient that came with a peer's model."""
        if isinstance(answer, CrossExchange) and self.is_peer(peer):
            self.crossed[peer] = answer.gradient

    def answered(self, answer: Exchange, asked: Exchange) -> asyncio.Task[CrossExchange]:
        """An answer with the gradient at the asker's model, which holds up no other message."""
        return self.spawn(self.with_gradient(answer, asked.params))

    async def with_gradient(self, answer: Exchange, at: Vector) -> CrossExchange:
        """The answer, once the gradient is there."""
        return CrossExchange(answer.params, answer.time, await self.gradient(at))

    async def on_message(self, message: object, sender: str) -> object:
        return self.pairs.on_message(message, sender)


class CGA(CrossGradients):
    """Cross-gradient aggregation in rounds: algorithm 1."""

    asynchronous = CGAInPairs

    def begin(self) -> None:
        super().begin()
        self.rounds = Rounds(self, self.settings.patience)

    async def step(self) -> None:
        self.rounds.announce()
        models = await self.rounds.gather()
        partners = [peer for peer in models if self.rounds.is_mutual(peer)]
        for peer in partners:
            self.rounds.tell(peer, CrossGradient(await self.gradient(models[peer].params)))
        answers = await self.rounds.replies(CrossGradient, partners)
        self.crossed.replace({peer: answer.gradient for peer, answer in answers.items()})
        update = await self.local_update()
        weights = neighbour_weights(self, self.rounds, models)
        self.params = neighbour_mean(self.params, weights, models) + update
