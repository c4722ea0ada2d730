"""Clients put their models on a server's blackboard, and continue from the mean of all models on it."""

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

    async def on_message(self, message, sender):  # a repeated request gets the same answer and counts once
        self.models[sender] = message.params
        return Mean(sum(self.models.values()) / len(self.models))


class BlackboardClient(Client):
    class Settings(Client.Settings):
        local_steps: Count = 5
        patience: Duration = "10 s"

    @classmethod
    def servers(cls, settings, clients, clusters):  # `clients` are the names of all clients
        return [ServerPlan("server", Blackboard, clients)]

    async def step(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        mine, server = Mine(self.params), self.peers[0]
        try:
            answer = await self.ask(server, mine, timeout=self.settings.patience, attempts=None)
        except PeerUnavailable:
            return  # the server is down: continue alone
        self.params = answer.params
