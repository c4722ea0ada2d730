"""DFedAvgM: decentralized federated averaging with momentum; many local steps, then one average.

Sun, Li and Wang, "Decentralized federated averaging" (2022), algorithm 1, with K local steps:

    y_i <- x_i,  v_i <- 0
    K times:     v_i <- theta v_i - eta g_i(y_i),  y_i <- y_i + v_i
    x_i <- sum_j W_ij y_j          W: the topology's weights, or else Metropolis-Hastings'

The momentum is forgotten at the start of each round. theta and eta are the scenario's (`training.momentum`,
`training.learning_rate`), which must be those of SGD with momentum; without it this is DFedAvg.

It differs from D-PSGD in what is averaged: the models after the local steps, not those before. The
asynchronous form is AD-PSGD's exchange beside such local steps. As in D-PSGD a neighbour that stays silent
for `patience` is left out and its weight given to the client itself. Quantised messages are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.settings.quantities import Count
from protocols.dpsgd import DPSGD
from protocols.framework.learner import ProtocolSettings
from protocols.framework.member import Requirement, common_start
from protocols.framework.vectors import Vector


class DFedAvgMSettings(DPSGD.Settings):
    """Train for epochs, and average with the neighbours in the topology."""

    local_epochs: Count = 1
    """Passes over the own samples in an iteration; each drops the last incomplete batch."""
    # A method that is told nothing trains for epochs here, for one step there.
    local_steps: Count | None = None  # type: ignore[assignment]
    """Training steps in an iteration (K), instead of `local_epochs`."""


class DFedAvgM(DPSGD):
    """DFedAvgM, synchronous and asynchronous."""

    Settings = DFedAvgMSettings
    settings: DFedAvgMSettings

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        made_for = "takes local steps of SGD with momentum"
        return (
            *super().requirements(settings),
            common_start("shared"),
            Requirement("training.optimizer", lambda value: value == "sgd", f'{made_for}; must be "sgd"'),
            Requirement("training.momentum", lambda value: value > 0, f"{made_for}; must be more than 0"),
        )

    async def local_update(self) -> Vector:
        steps = self.settings.local_steps or self.settings.local_epochs * self.compute.steps_per_epoch
        return await self.train(steps, fresh_optimizer=True)

    async def take_round(self) -> None:
        """One synchronous round: train, send, and mix once every neighbour's model of this round is there."""
        update = await self.local_update()
        self.params = self.params + update
        self.announce()
        self.params = self.mixed(await self.gather(self.settings.patience))
        self.round += 1
