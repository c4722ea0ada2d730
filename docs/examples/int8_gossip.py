"""Gossip learning with one byte per parameter: a message contains int8 levels, and the size of one level."""

from dataclasses import dataclass

import torch

from coterie import Scalar, Vector
from protocols.decentralized.gossip import AgedModel, Gossip


@dataclass(frozen=True)
class Levels:
    levels: Vector
    size: Scalar
    age: int
    time: float


def quantised(params):
    size = params.abs().amax() / 127  # `max` would also compute the index
    return (params / size.clamp(min=1e-12)).round().to(torch.int8), size


def restored(levels, size):
    return levels * size


class Int8Gossip(Gossip):
    async def step(self):
        levels, size = self.apply(quantised, self.params)
        self.gossip(Levels(levels, size, self.age, self.now), self.settings.fanout)
        await self.sleep(self.settings.period)
        if self.context.alone:
            await self.train_on()

    async def on_message(self, message, sender):
        params = self.apply(restored, message.levels, message.size)
        await super().on_message(AgedModel(params, message.age, message.time), sender)
