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
granted once; if the answers to all of a client's four attempts are lost, only the peer has moved.
When two ask each other at the same time, only the request of the first one by name is granted: both exchanges
together would just swap the models.
"""

from typing import Literal

from actors.settings.base import default
from actors.settings.quantities import Count, PositiveDuration
from protocols.framework.client import Client
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.rounds import RoundModel, Rounds
from protocols.shared.averaging import PairAveraging, neighbour_mean, neighbour_weights


class DPSGDSettings(ProtocolSettings):
    """Train, and average with the neighbours in the topology."""

    changing = ("local_steps",)

    mode: Literal["synchronous", "asynchronous"] = "synchronous"
    """In rounds with all neighbours (D-PSGD), or with one random neighbour at a time (AD-PSGD)."""
    local_steps: Count = 1
    """Training steps in an iteration."""
    patience: PositiveDuration = default("1 min")
    """How long a silent neighbour is waited for at most, and asked again whenever it is overdue."""


class ADPSGD(Client):
    """AD-PSGD; an exchange runs beside the training of the next iteration."""

    Settings = DPSGDSettings
    settings: DPSGDSettings

    def begin(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.pairs = PairAveraging(self, self.settings.patience)

    async def step(self) -> None:
        self.pairs.begin()
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update

    async def on_message(self, message: object, sender: str) -> object:
        return self.pairs.on_message(message, sender)


class DPSGD(Client):
    """D-PSGD, in rounds."""

    Settings = DPSGDSettings
    settings: DPSGDSettings
    collected = (RoundModel,)
    two_way = True
    asynchronous = ADPSGD

    def begin(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.rounds = Rounds(self, self.settings.patience)

    async def step(self) -> None:
        self.rounds.announce()  # x_t: it is on its way while this client trains
        update = await self.train(self.settings.local_steps)
        models = await self.rounds.gather()
        weights = neighbour_weights(self, self.rounds, models)
        self.params = neighbour_mean(self.params, weights, models) + update
