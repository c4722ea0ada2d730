"""Power of choice: of some random clients, those with the largest losses train.

Cho, Wang, Joshi, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
Strategies", 2020. The candidates are drawn in proportion to their numbers of samples.
"""

import asyncio
from dataclasses import dataclass

from coterie import Count, PeerUnavailable, RoundClient, RoundServer, RoundSettings, Vector


@dataclass(frozen=True)
class Query:
    params: Vector


class ChoosingServer(RoundServer):
    def setup(self):
        self.sizes = {}  # numbers of samples, from earlier answers

    async def round(self, number):
        sizes = [self.sizes.get(client, 1) for client in self.peers]
        count, shares = min(self.settings.candidates, len(sizes)), [size / sum(sizes) for size in sizes]
        drawn = [self.peers[k] for k in self.rng.choice(len(sizes), size=count, replace=False, p=shares)]
        losses = await asyncio.gather(*map(self.query, drawn))
        ranked = sorted(zip(losses, drawn, strict=True), reverse=True)
        self.chosen = [client for _, client in ranked[: self.settings.trained]]
        await super().round(number)

    async def query(self, client):
        try:
            query, patience = Query(self.params), self.settings.patience
            loss, self.sizes[client] = await self.ask(client, query, timeout=patience, attempts=None)
        except PeerUnavailable:
            return float("-inf")
        return loss

    def sample(self):
        return self.chosen


class PowerOfChoice(RoundClient):
    class Settings(RoundSettings):
        candidates: Count = 4
        trained: Count = 2

    server = ChoosingServer

    async def on_message(self, message, sender):
        if isinstance(message, Query):
            return float(await self.loss(message.params, on="train")), self.samples
        return await super().on_message(message, sender)
