"""Step 1: every client trains alone."""

from coterie import Client, Count


class Friends(Client):
    class Settings(Client.Settings):
        local_steps: Count = 5

    async def step(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
