"""Local training: every client alone, no message at all. The reference for "better than alone"."""

from actors.settings.quantities import Count
from protocols.framework.client import Client
from protocols.framework.requirements import ProtocolSettings


class Local(Client):
    """x_i <- x_i - eta g_i(x_i)."""

    class Settings(ProtocolSettings):
        """Everybody trains alone."""

        changing = ("local_steps", "local_epochs")

        local_steps: Count = 1
        """Training steps in an iteration."""
        local_epochs: Count | None = None
        """Passes over the own samples in an iteration, instead of `local_steps`."""

    settings: Settings
    heterogeneous = True

    async def step(self) -> None:
        epochs = self.settings.local_epochs
        steps = self.settings.local_steps if epochs is None else epochs * self.compute.steps_per_epoch
        update = await self.train(steps)
        self.params = self.params + update
