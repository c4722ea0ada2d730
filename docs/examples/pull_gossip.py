"""Train, pull the model of one random peer, and keep the mixture of both only if it helps me."""

from dataclasses import dataclass

from pydantic import PositiveInt

from coterie import Client, Duration, PeerUnavailable, Vector


@dataclass(frozen=True)
class Pull:
    """Asks a peer for its model."""


@dataclass(frozen=True)
class Model:
    params: Vector


class PullGossip(Client):
    class Settings(Client.Settings):  # scenario files set these, beside protocol.name
        local_steps: PositiveInt = 10
        patience: Duration = "2 s"

    async def step(self):  # one iteration; repeated until the run ends
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update  # read after the await: merges that arrived meanwhile survive
        try:
            answer = await self.ask(self.pick_peer(), Pull(), timeout=self.settings.patience)
        except PeerUnavailable:
            return  # lost, cut off or gone: carry on alone
        mixed = (self.params + answer.params) / 2
        # On samples held back: on what a client trained on, its own model is always the better one.
        if await self.loss(mixed, on="validation") < await self.loss(self.params, on="validation"):
            self.params = mixed

    async def on_message(self, message, sender):
        match message:
            case Pull():
                return Model(self.params)  # a returned value answers an ask
