"""FedBuff: a server collects arriving updates, and takes a step with every K of them.

Nguyen et al., "Federated learning with buffered asynchronous aggregation" (AISTATS 2022), algorithm 1, with
staleness u_k: number of steps of the server since it gave the client the model x_tau:

    a client:   D <- change by its local epochs from x_tau
    the server: x <- x + eta_g (1/K) sum_k D_k / sqrt(1 + u_k)         whenever K updates have arrived

Differences from the paper: all clients train all the time, while the paper limits how many train at once. A
client that has sent its update gets the server's current model, which may be the one that it had. A client is
evaluated by the last model that it was given.
"""

from actors.settings.quantities import Count, PositiveWeight
from protocols.framework.search_space import LOCAL_STEPS, OneOf, Range, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.shared.async_server import AsyncClient, AsyncServer, AsyncSettings


class FedBuffSettings(AsyncSettings):
    """Take a step with every K updates that arrive."""

    changing = (*AsyncSettings.changing, "buffer", "server_rate")

    buffer: Count = 10
    """Number K of updates in a step."""
    server_rate: PositiveWeight = 1.0
    """Learning rate eta_g of the server; with 1 and no staleness a step is the mean of the updates."""


class FedBuffServer(AsyncServer):
    """Server that collects updates."""

    settings: FedBuffSettings

    def setup(self) -> None:
        self.updates: list[tuple[float, Vector]] = []
        """Updates since the last step, with their weights."""

    def arrived(self, work: Vector, client: str, staleness: int) -> None:
        self.updates.append(((1 + staleness) ** -0.5, work))
        if len(self.updates) >= self.settings.buffer:
            rate = self.settings.server_rate / len(self.updates)
            self.params = self.params + mix([(rate * weight, update) for weight, update in self.updates])
            self.updates = []


class FedBuff(AsyncClient):
    """Client that sends the update of its training."""

    Settings = FedBuffSettings
    search_space = SearchSpace(
        "coterie's default buffer of 10, and less for few clients; the paper's text was not available",
        {
            "buffer": OneOf((1, 2, 5, 10)),
            "server_rate": Range(0.1, 2.0, log=True),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: FedBuffSettings
    server = FedBuffServer

    async def work(self, start: Vector) -> object:
        return await self.trained(start) - start
