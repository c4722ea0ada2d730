"""Step 2: after each training, send the model to a random peer, which averages both models."""

from dataclasses import dataclass

from coterie import Client, Count, Vector


@dataclass(frozen=True)
class Model:
    params: Vector


class Friends(Client):
    class Settings(Client.Settings):
        local_steps: Count = 5

    async def step(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        self.gossip(Model(self.params))

    async def on_message(self, message, sender):
        self.params = (self.params + message.params) / 2
