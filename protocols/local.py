"""Local training: every client alone, no message at all. The reference for "better than alone"."""

from __future__ import annotations

from pydantic import PositiveInt

from protocols import learner


class Local(learner.Learner):
    """x_i <- x_i - eta g_i(x_i)."""

    class Settings(learner.Settings):
        """Everybody trains alone."""

        local_steps: PositiveInt = 1
        """Training steps in an iteration."""

    settings: Settings
    heterogeneous = True

    async def step(self) -> None:
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
