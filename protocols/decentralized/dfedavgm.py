"""DFedAvgM: decentralized federated averaging with momentum; many local steps, then one average.

Sun, Li and Wang, "Decentralized federated averaging" (2022), algorithm 1, with K local steps:

    y_i <- x_i,  v_i <- 0
    K times:     v_i <- theta v_i - eta g_i(y_i),  y_i <- y_i + v_i
    x_i <- sum_j W_ij y_j          W: the topology's weights, or else Metropolis-Hastings weights

The momentum is reset at the start of each round. theta and eta are the scenario's (`training.momentum`,
`training.learning_rate`), which must be those of SGD with momentum; without momentum, this is DFedAvg.

Unlike D-PSGD, DFedAvgM averages the models after the local steps, not the models before these steps. The
asynchronous form combines these local steps with AD-PSGD's exchange. As in D-PSGD, a neighbor that stays
silent for `patience` is left out, and the client itself gets its weight. Quantized messages are omitted.
"""

from collections.abc import Sequence

from actors.settings.quantities import Count
from protocols.decentralized.dpsgd import DPSGDSettings
from protocols.framework.client import Client
from protocols.framework.requirements import (
    ProtocolSettings,
    Requirement,
    common_start_requirement,
    two_way_links_requirement,
)
from protocols.framework.rounds import RoundModel, Rounds
from protocols.framework.search_space import LOCAL_STEPS, OneOf, SearchSpace
from protocols.framework.vectors import Vector
from protocols.shared.averaging import PairAveraging, neighbour_mean, neighbour_weights


class DFedAvgMSettings(DPSGDSettings):
    """Train for epochs, and average with the neighbors in the topology."""

    local_epochs: Count = 1
    """Passes over the client's samples in an iteration; each drops the last incomplete batch."""
    # Without settings, this method trains for epochs, and D-PSGD for one step.
    local_steps: Count | None = None  # type: ignore[assignment]
    """Training steps in an iteration (K), instead of `local_epochs`."""


class DFedAvgMInPairs(Client):
    """Asynchronous form: local steps, and concurrent averages with one random neighbor at a time."""

    Settings = DFedAvgMSettings
    settings: DFedAvgMSettings

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.pairs = PairAveraging(self, self.settings.patience)

    async def step(self) -> None:
        self.pairs.start()
        update = await local_update(self, self.settings)
        self.params = self.params + update

    async def on_message(self, message: object, sender: str) -> object:
        return self.pairs.on_message(message, sender)


async def local_update(client: Client, settings: DFedAvgMSettings) -> Vector:
    """Return the update of K local steps, with a momentum that starts at 0."""
    steps = settings.local_steps or settings.local_epochs * client.compute.steps_per_epoch
    return await client.train(steps, fresh_optimizer=True)


class DFedAvgM(Client):
    """DFedAvgM in rounds."""

    Settings = DFedAvgMSettings
    search_space = SearchSpace(
        "the method's momentum, with the usual values",
        {
            "training.momentum": OneOf((0.3, 0.6, 0.9)),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: DFedAvgMSettings
    collected = (RoundModel,)
    asynchronous = DFedAvgMInPairs

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        made_for = "takes local steps of SGD with momentum"
        return (
            *two_way_links_requirement(settings),
            common_start_requirement("shared"),
            Requirement("training.optimizer", lambda value: value == "sgd", f'{made_for}; must be "sgd"'),
            Requirement("training.momentum", lambda value: value > 0, f"{made_for}; must be more than 0"),
        )

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.rounds = Rounds(self, self.settings.patience)

    async def step(self) -> None:
        update = await local_update(self, self.settings)
        self.params = self.params + update
        self.rounds.announce()
        models = await self.rounds.gather()
        weights = neighbour_weights(self, self.rounds, models)
        self.params = neighbour_mean(self.params, weights, models)
