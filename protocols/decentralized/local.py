"""Local training: each client trains alone, without messages. The reference for gains from collaboration."""

from actors.settings.quantities import Count
from protocols.framework.client import Client
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.search_space import SearchSpace


class Local(Client):
    """Client that trains alone: x_i <- x_i - eta g_i(x_i)."""

    search_space = SearchSpace(
        "only the learning rate",
    )

    class Settings(ProtocolSettings):
        """Train alone."""

        changing = ("local_steps", "local_epochs")

        local_steps: Count = 1
        """Training steps in an iteration."""
        local_epochs: Count | None = None
        """Passes over the client's samples in an iteration, instead of `local_steps`."""

    settings: Settings
    heterogeneous = True

    async def step(self) -> None:
        epochs = self.settings.local_epochs
        steps = self.settings.local_steps if epochs is None else epochs * self.compute.steps_per_epoch
        update = await self.train(steps)
        self.params = self.params + update
