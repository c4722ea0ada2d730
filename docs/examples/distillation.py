"""Gossip by distillation: clients exchange the outputs of their models on public samples, and never a model.

Li and Wang do the same with a server, "FedMD: Heterogenous Federated Learning via Model Distillation", 2019.
A client trains on its own samples and sends some peers the logits of its model on the unlabeled public
samples. It also trains its model to match the mean of its peers' latest logits. Architectures may differ:
`model.name = "decoupled"` with several `backbones`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import functional

from coterie import Client, Count, PerPeer, PositiveWeight, Vector, mix


@dataclass(frozen=True)
class Opinion:
    logits: Vector


def public_samples(seed, count):
    """Return unlabeled digits, each the mean of two digits, scaled like the clients' digits."""
    pixels = load_digits().data
    first, second = np.random.default_rng(seed).integers(len(pixels), size=(2, count))
    return ((pixels[first] + pixels[second]) / 2 - pixels.mean()) / pixels.std()


def distilled(params, inputs, teacher, model, size, rate):
    x = inputs.reshape(-1, *model.input_shape)
    wanted = teacher.reshape(len(x), -1).softmax(dim=1)

    def loss(params, x, wanted):
        return functional.cross_entropy(model.forward(params, x), wanted)

    for batch in zip(x.split(size), wanted.split(size), strict=True):
        params = params - rate * torch.func.grad(loss)(params, *batch)
    return params


class Distillation(Client):
    class Settings(Client.Settings):
        local_steps: Count = 5
        fanout: Count = 2
        public: Count = 100
        """Number of public samples; each iteration uses each sample once, in batches."""
        rate: PositiveWeight = 0.05
        """Learning rate on public samples."""

    heterogeneous = True  # it never mixes models

    def setup(self):
        samples = public_samples(self.context.shared_seed, self.settings.public)  # the same for all clients
        self.public = self.vector(samples.ravel())
        self.batch_size = self.batch().samples
        self.opinions = PerPeer(self)

    async def step(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        if self.opinions:
            teacher = mix([(1 / len(self.opinions), logits) for logits in self.opinions.values()])
            self.params = await self.apply(
                distilled,
                self.params,
                self.public,
                teacher,
                model=self.context.model,
                size=self.batch_size,
                rate=self.settings.rate,
                steps=self.settings.public / self.batch_size,
            )
        self.gossip(Opinion(await self.predict(self.params, self.public)), self.settings.fanout)

    async def on_message(self, message, sender):
        match message:
            case Opinion(logits):
                self.opinions[sender] = logits
