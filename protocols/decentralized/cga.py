"""CGA: steps that do not contradict any neighbor's gradient at the client's own model.

Esfandiari, Tan, Jiang, Balu, Herron, Hegde and Sarkar, "Cross-gradient aggregation for decentralized learning
from non-IID data" (ICML 2021), algorithm 1. In rounds with a barrier among neighbors, for client i:

    g_ij: gradient of neighbor j's loss at x_i, on j's data; x_i goes to j, and g_ij comes back
    z_i  = the point nearest to g_ii with <z, g_ij> >= 0 for all neighbors j
    v_i <- beta v_i - eta z_i
    x_i <- sum_j W_ij x_j + v_i                    W: Metropolis-Hastings weights of the topology

z_i comes from the dual quadratic program, which has one variable u_j for each neighbor (as in gradient
episodic memory, Lopez-Paz and Ranzato 2017): z_i = g_ii + sum_j u_j g_ij with the u >= `margin` that minimize
|z_i|. v_i is the momentum, beta the setting `momentum`, and eta the scenario's learning rate.

Asynchronous: AD-PSGD's exchange with one random neighbor at a time, which also answers with its gradient at
the model it was sent; z_i uses the last of these gradients of each neighbor, however old.

Differences from the paper (its text was not available): this follows its abstract, general knowledge, and
facts of its authors' public code where needed. That code solves the program for each layer, with gradients
multiplied by W_ij and a margin of 0.5, so that neighbors' gradients always count; and it looks ahead by the
momentum (Nesterov). Here the program is solved for whole models. `local_steps` above 1 replace -eta g_ii by
the sum of several updates; SCooL's authors report that this diverges with five epochs. CompCGA is omitted.
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
from protocols.framework.requirements import (
    ProtocolSettings,
    Requirement,
    common_start_requirement,
    constant_rate_requirement,
    plain_sgd_requirements,
    two_way_links_requirement,
)
from protocols.framework.rounds import RoundModel, Rounds
from protocols.framework.search_space import LOCAL_STEPS, Range, SearchSpace
from protocols.framework.vectors import Vector
from protocols.shared.averaging import Exchange, PairAveraging, neighbour_mean, neighbour_weights

_STEPS = 150


@dataclass(frozen=True)
class CrossGradient:
    """Gradient of the sender at the receiver's model of the round."""

    gradient: Vector


@dataclass(frozen=True)
class CrossExchange(Exchange):
    """Answer to an exchange, with the sender's gradient at the received model."""

    gradient: Vector


def project_to_agreement(own: Tensor, *others: Tensor, margin: float) -> Tensor:
    """Return the point z [P] nearest to `own` [P] with <z, g> >= 0 for all g [P] in `others`.

    With a margin above 0, return z = own + sum u g for the u >= margin that minimize |z|^2. The result is
    approximate: a fixed number of steps of accelerated projected gradient descent on the dual problem (Beck
    and Teboulle 2009), with g scaled to length 1, in float64.
    """
    rows = torch.stack(others).double()
    squares = (rows * rows).sum(dim=1)
    # Gradients of 0 are no constraint: their u stays at the margin.
    scale = torch.where(squares > 0, squares, torch.ones_like(squares)).rsqrt()
    unit = rows * scale[:, None]
    gram, slope, least = unit @ unit.T, unit @ own.double(), margin / scale
    step = 1 / gram.abs().sum(dim=1).max().clamp(min=1.0)  # at most 1 over the largest eigenvalue
    u = ahead = least
    for k in range(_STEPS):
        before, u = u, torch.maximum(ahead - step * (slope + gram @ ahead), least)
        ahead = u + k / (k + 3) * (u - before)
    return (own + u @ unit).to(own.dtype)


class CGASettings(DPSGDSettings):
    """Train along gradients that no neighbor's gradient contradicts, and average with the neighbors."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum beta: share of the last change that is added to the next."""
    margin: Weight = 0.0
    """Minimum factor of a neighbor's gradient: 0 is the projection; the authors' code uses 0.5."""


class CrossGradients(Client):
    """Base of both forms of CGA."""

    Settings = CGASettings
    settings: CGASettings
    collected = (RoundModel, CrossGradient)

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        assert isinstance(settings, CGASettings)
        problem = "adds neighbors' gradients at the constant learning rate with margin > 0"
        in_rounds = settings.mode == "synchronous"
        return (
            *(two_way_links_requirement(settings) if in_rounds else ()),
            common_start_requirement("shared"),
            *plain_sgd_requirements("uses single gradients as steps, and has its own momentum"),
            *([constant_rate_requirement(problem)] if settings.margin else []),
        )

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.crossed = PerPeer[Vector](self)  # neighbors' gradients at this client's model
        self.velocity: Vector | None = None

    async def local_update(self) -> Vector:
        """Train, and return the update: the momentum v_i, computed with the latest cross-gradients."""
        change = await self.train(self.settings.local_steps)
        if self.crossed:
            # Descent along -eta g_ij, so that the margin is in units of gradients.
            others = [-self.compute.learning_rate * gradient for gradient in self.crossed.values()]
            change = self.apply(project_to_agreement, change, *others, margin=self.settings.margin)
        if self.velocity is not None and self.settings.momentum:
            change = change + self.settings.momentum * self.velocity
        self.velocity = change
        return change


class CGAInPairs(CrossGradients):
    """CGA with AD-PSGD's exchange, in which the peer also answers with its gradient at the asker's model."""

    def setup(self) -> None:
        super().setup()
        self.pairs = PairAveraging(self, self.settings.patience, self.answered, self.met)

    async def step(self) -> None:
        self.pairs.start()
        update = await self.local_update()
        self.params = self.params + update

    def met(self, peer: str, answer: Exchange) -> None:
        """Keep the gradient that arrived with a peer's model."""
        if isinstance(answer, CrossExchange) and self.is_peer(peer):
            self.crossed[peer] = answer.gradient

    def answered(self, answer: Exchange, request: Exchange) -> asyncio.Task[CrossExchange]:
        """Return a task that answers with the gradient, so that no other message has to wait."""
        return self.spawn(self.with_gradient(answer, request.params))

    async def with_gradient(self, answer: Exchange, at: Vector) -> CrossExchange:
        """Compute the gradient at the asker's model and return the answer with it."""
        return CrossExchange(answer.params, answer.time, await self.gradient(at))

    async def on_message(self, message: object, sender: str) -> object:
        return self.pairs.on_message(message, sender)


class CGA(CrossGradients):
    """CGA in rounds: algorithm 1."""

    search_space = SearchSpace(
        "the paper's text was not available; momentum up to the usual 0.9",
        {
            "momentum": Range(0.0, 0.9),
            "local_steps": LOCAL_STEPS,
        },
    )
    asynchronous = CGAInPairs

    def setup(self) -> None:
        super().setup()
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
