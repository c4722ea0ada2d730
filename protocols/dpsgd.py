"""Decentralized parallel SGD: train on own data, average with the neighbours in the topology.

Synchronous: Lian et al., "Can decentralized algorithms outperform centralized algorithms?" (2017),
algorithm 1, in rounds with a barrier among neighbours only:

    x_i <- sum_j W_ij x_j - eta g_i(x_i),   W: the topology's weights, or else Metropolis-Hastings'

Asynchronous: Lian et al., "Asynchronous decentralized parallel SGD" (AD-PSGD, 2018). Each client computes
gradients without pause, and beside that averages with one random neighbour at a time:

    x_i, x_j <- (x_i + x_j)/2   (one random neighbour j)
    x_i <- x_i - eta g_i(x_i as it was when g_i was begun)

Differences to the papers: `local_steps` may be more than 1 (the update then is the sum of several steps). A
neighbour that stays silent for `patience`, however often it is reminded, is left out and its weight given to
the client itself; a lost model is sent again, and mixed in the round that it belongs to. The
asynchronous exchange adds (x_j - x_i)/2 of the models at the time of sending to both sides, so that it needs
no lock and no bipartite topology and still keeps the mean. A lost request or answer is asked for again, and
granted once; if all four answers are lost, only the peer has moved.
When two ask each other at the same time, only the request of the first one by name is granted: both exchanges
together would just swap the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from actors.message import PeerUnavailable, RemoteError
from actors.settings.base import default
from actors.settings.quantities import Count, PositiveDuration
from protocols.framework import learner
from protocols.framework.mathematics import metropolis_weights
from protocols.framework.vectors import Vector, mix
from protocols.shared.rounds import RoundLearner, RoundModel
from protocols.shared.two_forms import TwoForms

_ATTEMPTS = 4


@dataclass(frozen=True)
class Exchange:
    """Asks a peer to average its model with this one; the answer is an Exchange with its model, or None."""

    params: Vector
    time: float


class DPSGD(TwoForms, RoundLearner):
    """D-PSGD and AD-PSGD."""

    class Settings(learner.ProtocolSettings):
        """Train, and average with the neighbours in the topology."""

        changing = ("local_steps",)

        mode: Literal["synchronous", "asynchronous"] = "synchronous"
        """In rounds with all neighbours (D-PSGD), or with one random neighbour at a time (AD-PSGD)."""
        local_steps: Count = 1
        """Training steps in an iteration."""
        patience: PositiveDuration = default("1 min")
        """How long a silent neighbour is waited for at most, and asked again whenever it is overdue."""

    settings: Settings
    asked: str | None = None
    """Asynchronous: the peer whose answer to an exchange is awaited."""

    def __init__(
        self, name: str, surroundings: learner.Surroundings, compute: learner.Compute, settings: Settings
    ) -> None:
        super().__init__(name, surroundings, compute, settings)
        self.wait_at_first(settings.patience)

    async def take_round(self) -> None:
        """One synchronous round: send, train, and mix once every neighbour's model of this round is there."""
        self.announce()
        update = await self.local_update()
        self.params = self.mixed(await self.gather(self.settings.patience)) + update
        self.round += 1

    async def local_update(self) -> Vector:
        """What training changes in an iteration."""
        return await self.train(self.settings.local_steps)

    def mixed(self, models: Mapping[str, RoundModel]) -> Vector:
        """The average of the own model and those of the partners in this round."""
        if self.mixing_weights is not None:
            weights = {peer: self.mixing_weights[peer] for peer in models}
        else:
            # With the degrees as they were announced, both ends of a link compute the same weight.
            degrees = {peer: model.degree for peer, model in models.items()}
            weights = metropolis_weights(self.degree, degrees)
        kept = 1.0 - sum(weights.values())
        return mix([(kept, self.params)] + [(weights[peer], model.params) for peer, model in models.items()])

    async def iterate(self) -> None:
        """One asynchronous iteration; the exchange runs beside the training of the next one."""
        if self.peers and self.asked is None:
            self.spawn(self.exchange(self.pick_peer()))
        update = await self.local_update()
        self.params = self.params + update

    async def exchange(self, peer: str) -> None:
        """Average with one peer."""
        self.asked = peer
        sent = self.params
        try:
            answer = await self.ask(
                peer, Exchange(sent, self.now), timeout=self.settings.patience, attempts=_ATTEMPTS
            )
            if answer is not None:
                self.met(peer, answer, sent)
        except (PeerUnavailable, RemoteError):
            self.suspect(peer)
        finally:
            self.asked = None

    def met(self, peer: str, answer: Exchange, sent: Vector) -> None:
        """`peer` has gone half the way to the model that it was sent: go the other half."""
        self.observe("staleness", self.now - answer.time)
        self.params = self.params + (answer.params - sent) / 2

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case Exchange() if self.asked == sender and self.name < sender:
                return None  # ours to it will do
            case Exchange(params, time):
                self.observe("staleness", self.now - time)
                sent = self.params
                self.params = sent + (params - sent) / 2
                return Exchange(sent, self.now)
        return None
