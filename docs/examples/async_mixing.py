"""FedAsync in short: a server mixes in each model that arrives, with less weight for older base models.

Xie, Koyejo, Gupta, "Asynchronous federated optimization", 2019. `fedasync` is the complete method.
"""

from coterie import AsyncClient, AsyncServer, AsyncSettings, Share, Weight, mix


class MixingServer(AsyncServer):
    def arrived(self, work, client, staleness):
        share = self.settings.mixing * (1 + staleness) ** -self.settings.exponent
        self.params = mix([(1 - share, self.params), (share, work)])


class Mixing(AsyncClient):
    class Settings(AsyncSettings):  # local_steps or local_epochs, patience
        mixing: Share = 0.6
        """Weight of a model that was trained from the server's latest model."""
        exponent: Weight = 0.5
        """Exponent by which older models lose weight."""

    server = MixingServer

    async def work(self, start):  # start: the server's model; `arrived` receives the result
        return await self.trained(start, proximal=[(0.005, start)])
