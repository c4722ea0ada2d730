"""Gossip whose clients train by an ordinary loop of torch, with a module, an optimizer and `backward`."""

from dataclasses import dataclass

import torch
from torch import nn

from coterie import Client, Count, Vector


@dataclass(frozen=True)
class Model:
    params: Vector


def unchanged(values):
    return values


class OwnLoop(Client):
    class Settings(Client.Settings):
        local_steps: Count = 5

    def setup(self):
        self.x = self.inputs().tensor().reshape(self.samples, -1)
        self.y = self.labels().tensor().long()
        # The model of the scenario, logistic-regression. Random initial values would come from a global
        # generator; the loop sets all values.
        self.module = nn.utils.skip_init(nn.Linear, self.x.shape[1], 10)

    async def step(self):
        start, parameters = self.params, list(self.module.parameters())
        nn.utils.vector_to_parameters(start.tensor(), parameters)
        optimizer = torch.optim.SGD(parameters, lr=self.compute.learning_rate)
        for _ in range(self.settings.local_steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.module(self.x), self.y).backward()
            optimizer.step()
        trained = self.vector(nn.utils.parameters_to_vector(parameters).detach())
        # The loop takes no virtual time; this call takes the time of its steps. Models may arrive meanwhile.
        update = await self.apply(unchanged, trained - start, steps=self.settings.local_steps)
        self.params = self.params + update
        self.gossip(Model(self.params))

    async def on_message(self, message, sender):
        self.params = (self.params + message.params) / 2
