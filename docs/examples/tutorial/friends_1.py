"""Step 1: every client trains alone."""

from protocols import Count, Learner


class Friends(Learner):
    class Settings(Learner.Settings):
        local_steps: Count = 5

    async def step(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
