"""Gossip learning with one byte per parameter: a message contains int8 levels, and the size of one level."""

from dataclasses import dataclass, replace

import torch

from coterie import Scalar
from protocols.decentralized.gossip import AgedModel, Gossip


@dataclass(frozen=True, kw_only=True)
class Levels(AgedModel):
    """AgedModel whose params are levels."""

    size: Scalar


def quantized(params):
    size = params.abs().amax() / 127  # `max` would also compute the index
    return (params / size.clamp(min=1e-12)).round().to(torch.int8), size


def restored(levels, size):
    return levels * size


class Int8Gossip(Gossip):
    def pushed(self):
        model = super().pushed()
        levels, size = self.apply(quantized, model.params)
        return Levels(**vars(model) | {"params": levels}, size=size)

    async def on_message(self, message, sender):
        params = self.apply(restored, message.params, message.size)
        await super().on_message(replace(message, params=params), sender)
