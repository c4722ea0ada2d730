"""Clients put their models on a server's blackboard, and go on from the mean of all that are there."""

from dataclasses import dataclass

from coterie import Client, Count, Duration, PeerUnavailable, Server, ServerPlan, Vector


@dataclass(frozen=True)
class Mine:
    params: Vector


@dataclass(frozen=True)
class Mean:
    params: Vector


class Blackboard(Server):
    def setup(self):
        self.models = {}

    async def on_message(self, message, sender):  # asked again, the same answer is given: it counts once
        self.models[sender] = message.params
        return Mean(sum(self.models.values()) / len(self.models))


class BlackboardClient(Client):
    class Settings(Client.Settings):
        local_steps: Count = 5
        patience: Duration = "10 s"

    @classmethod
    def servers(cls, settings, clients, clusters):  # by name: `clients` are the names of all
        return [ServerPlan("server", Blackboard, clients)]

    async def step(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        mine, server = Mine(self.params), self.peers[0]
        try:
            answer = await self.ask(server, mine, timeout=self.settings.patience, attempts=None)
        except PeerUnavailable:
            return  # the server is away: carry on alone
        self.params = answer.params
