"""A server without rounds keeps the latest model of each client, and sends their mean to all clients.

Each client therefore has the same weight, however often it reports (Gu et al. 2021 do so with updates: MIFA).
One part of the model, such as its last biases, remains personal.
"""

from coterie import AsyncClient, AsyncServer, AsyncSettings, mix


class LatestServer(AsyncServer):
    def __init__(self, *given):
        super().__init__(*given)
        self.latest = {}

    def arrived(self, work, client, staleness):  # `work` is the return value of the client's `work`
        self.latest[client] = work
        self.params = mix([(1 / len(self.latest), model) for model in self.latest.values()])


class LatestModels(AsyncClient):
    class Settings(AsyncSettings):  # local_steps or local_epochs
        own: str = "1.bias"
        """Part of the model that each client keeps instead of taking it from the server."""

    server = LatestServer
    mine = None

    async def work(self, start):
        if self.mine is not None:
            start = self.with_part(start, self.settings.own, self.part(self.mine, self.settings.own))
        self.mine = await self.trained(start)
        return self.mine

    def evaluated(self):
        return {"personal": self.mine or self.params, "shared": self.params}
