"""Epidemic learning: clients send their models to random peers, and average them with those received.

De Vos, Farhadkhani, Guerraoui, Kermarrec, Pires, Sharma, "Epidemic Learning: Boosting Decentralized Learning
with Randomized Communication", NeurIPS 2023; the form without an oracle (EL-Local). Each client has its own
rounds: no client waits for others, and a model counts in the round in which it arrives.
"""

from dataclasses import dataclass

from coterie import Client, Count, Vector, mix


@dataclass(frozen=True)
class Model:
    params: Vector


class Epidemic(Client):
    class Settings(Client.Settings):
        fanout: Count = 3
        local_steps: Count = 5

    def __init__(self, *given):
        super().__init__(*given)
        self.received = []

    async def step(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        self.gossip(Model(self.params), self.settings.fanout)
        models, self.received = [self.params, *self.received], []
        self.params = mix([(1 / len(models), model) for model in models])

    async def on_message(self, message, sender):
        match message:
            case Model(params):
                self.received.append(params)
