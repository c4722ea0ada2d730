"""Stochastic gradient push: averaging over directed links, independent of the order of messages.

Assran, Loizou, Ballas, Rabbat, "Stochastic Gradient Push for Distributed Deep Learning", ICML 2019. A client
keeps a sum x of shares of models and a weight w; its model is x / w. At each step it trains that model, keeps
half of x and of w, and sends the other half to one random peer. Shares are only moved, so
all models approach the same average. If a message is lost, its parts of x and w are lost together, so that
x / w remains an average of models.
"""

from dataclasses import dataclass

from coterie import Client, Vector


@dataclass(frozen=True)
class Share:
    total: Vector
    weight: float


class PushSum(Client):
    def __init__(self, *given):
        super().__init__(*given)
        self.total, self.weight = self.params, 1.0

    async def step(self):
        update = await self.train()
        self.total = self.total + update * self.weight  # so that x / w moves by the update
        share = Share(self.total / 2, self.weight / 2)
        if self.peers:
            self.take(-1, share)
            self.tell(self.pick_peer(), share)
        self.params = self.total / self.weight

    async def on_message(self, message, sender):
        match message:
            case Share():
                self.take(+1, message)
                self.params = self.total / self.weight

    def take(self, sign, share):
        self.total = self.total + sign * share.total
        self.weight += sign * share.weight
