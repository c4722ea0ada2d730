"""A server mixes in each model that arrives, the less the older what it was trained from: FedAsync, in short.

Xie, Koyejo, Gupta, "Asynchronous federated optimization", 2019. `fedasync` is the whole of it.
"""

from coterie import AsyncClient, AsyncServer, AsyncSettings, Share, Weight, mix


class MixingServer(AsyncServer):
    def arrived(self, work, client, staleness):
        share = self.settings.mixing * (1 + staleness) ** -self.settings.exponent
        self.params = mix([(1 - share, self.params), (share, work)])


class Mixing(AsyncClient):
    class Settings(AsyncSettings):  # local_steps or local_epochs, patience
        mixing: Share = 0.6
        """How much a model counts that was trained from the server's latest."""
        exponent: Weight = 0.5
        """How fast older ones lose weight."""

    server = MixingServer

    async def work(self, start):  # from the server's model; what is returned comes to `arrived`
        return await self.trained(start, proximal=[(0.005, start)])
