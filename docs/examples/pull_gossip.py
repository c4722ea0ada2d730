"""Train, pull the model of one random peer, and keep the mean of both models only if it helps."""

from dataclasses import dataclass

from pydantic import PositiveInt

from coterie import Client, Duration, PeerUnavailable, Vector


@dataclass(frozen=True)
class Pull:
    """A request for the model of a peer."""


@dataclass(frozen=True)
class Model:
    params: Vector


class PullGossip(Client):
    class Settings(Client.Settings):  # scenario files set these next to protocol.name
        local_steps: PositiveInt = 10
        patience: Duration = "2 s"

    async def step(self):  # one iteration; repeated until the run ends
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update  # read self.params after the await to keep concurrent merges
        try:
            answer = await self.ask(self.pick_peer(), Pull(), timeout=self.settings.patience)
        except PeerUnavailable:
            return  # the message is lost or the peer is down: continue alone
        mixed = (self.params + answer.params) / 2
        # Use held-out samples: on its training samples, a client's own model is almost always better.
        if await self.loss(mixed, on="validation") < await self.loss(self.params, on="validation"):
            self.params = mixed

    async def on_message(self, message, sender):
        match message:
            case Pull():
                return Model(self.params)  # the return value answers an ask
