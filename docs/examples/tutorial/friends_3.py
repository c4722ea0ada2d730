"""Step 3: ask a random peer for its model, and keep the average only if it helps."""

from dataclasses import dataclass

from coterie import Client, Count, Duration, PeerUnavailable, Vector


@dataclass(frozen=True)
class Pull:
    """A request for the model of a peer."""


@dataclass(frozen=True)
class Model:
    params: Vector


class Friends(Client):
    class Settings(Client.Settings):
        local_steps: Count = 5
        patience: Duration = "2 s"

    async def step(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        try:
            await self.learn_from(self.pick_peer())
        except PeerUnavailable:
            return  # the peer is down, cut off or slow: continue alone

    async def learn_from(self, peer):
        answer = await self.ask(peer, Pull(), timeout=self.settings.patience)
        mixed = (self.params + answer.params) / 2
        before = await self.loss(self.params, on="validation")
        helps = await self.loss(mixed, on="validation") < before
        self.observe("helped", float(helps))
        if helps:
            self.params = mixed

    async def on_message(self, message, sender):
        return Model(self.params)  # the return value answers the ask
