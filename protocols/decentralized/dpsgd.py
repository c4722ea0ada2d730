"""Decentralized parallel SGD: training on the client's data, and averages with neighbors in the topology.

Synchronous: Lian et al., "Can decentralized algorithms outperform centralized algorithms?" (2017),
algorithm 1, in rounds with a barrier among neighbors only:

    x_i <- sum_j W_ij x_j - eta g_i(x_i),   W: the topology's weights, or else Metropolis-Hastings weights

Asynchronous: Lian et al., "Asynchronous decentralized parallel SGD" (AD-PSGD, 2018). Each client computes
gradients without pause, and concurrently averages with one random neighbor at a time:

    x_i, x_j <- (x_i + x_j)/2   (one random neighbor j)
    x_i <- x_i - eta g_i(x_i as it was when g_i was started)

Differences from the papers: `local_steps` may be more than 1 (the update then is the sum of several steps). A
neighbor that stays silent for `patience`, despite repeated requests, is left out, and the client itself gets
its weight; a lost model is sent again, and mixed in the round that it belongs to. In the asynchronous
exchange, each side adds (other model - own model)/2, with both models as they were when sent, so it needs no
lock and no bipartite topology and still keeps the mean. A request whose answer is missing is repeated, and
granted once; if the answers to all of a client's four attempts are lost, only the peer has moved. When two
clients ask each other at the same time, only the request of the client whose name sorts first is granted:
both exchanges together would just swap the models.
"""

from typing import Literal

from actors.settings.base import default
from actors.settings.quantities import Count, PositiveDuration
from protocols.framework.client import Client
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.rounds import RoundModel, Rounds
from protocols.framework.search_space import LOCAL_STEPS, SearchSpace
from protocols.shared.averaging import PairAveraging, neighbour_mean, neighbour_weights


class DPSGDSettings(ProtocolSettings):
    """Train, and average with the neighbors in the topology."""

    changing = ("local_steps",)

    mode: Literal["synchronous", "asynchronous"] = "synchronous"
    """Rounds with all neighbors (D-PSGD), or exchanges with one random neighbor at a time (AD-PSGD)."""
    local_steps: Count = 1
    """Training steps in an iteration."""
    patience: PositiveDuration = default("1 min")
    """Maximum wait for a silent neighbor, which gets repeated requests meanwhile."""


class ADPSGD(Client):
    """AD-PSGD; an exchange runs concurrently with the training of the next iteration."""

    Settings = DPSGDSettings
    settings: DPSGDSettings

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.pairs = PairAveraging(self, self.settings.patience)

    async def step(self) -> None:
        self.pairs.start()
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update

    async def on_message(self, message: object, sender: str) -> object:
        return self.pairs.on_message(message, sender)


class DPSGD(Client):
    """D-PSGD in rounds."""

    Settings = DPSGDSettings
    search_space = SearchSpace(
        "only the local work",
        {
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: DPSGDSettings
    collected = (RoundModel,)
    two_way = True
    asynchronous = ADPSGD

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.rounds = Rounds(self, self.settings.patience)

    async def step(self) -> None:
        self.rounds.announce()  # x_t: it is in transit while this client trains
        update = await self.train(self.settings.local_steps)
        models = await self.rounds.gather()
        weights = neighbour_weights(self, self.rounds, models)
        self.params = neighbour_mean(self.params, weights, models) + update
