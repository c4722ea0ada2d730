"""Gossip of private models: what a client learns is clipped and made noisy before it is in any model.

So are all models that it sends, and whoever has seen them all learns little of whether it has trained at all:
(epsilon, delta)-differential privacy of all that a client has, for the epsilon that is observed. Mixing costs
nothing. Much noise needs many clients: it averages out over those who mix.
"""

from typing import Annotated

from coterie import GaussianMechanism, PositiveWeight, Weight, Within
from protocols.decentralized.gossip import Gossip


class PrivateGossip(Gossip):
    class Settings(Gossip.Settings):
        clip: PositiveWeight = 1.0
        """An update's norm at most."""
        noise_multiplier: Weight = 1.0
        """The noise's deviation, beside `clip`; 0: none."""
        delta: Annotated[float, Within(1e-12, 0.1)] = 1e-5

    def setup(self):
        super().setup()
        self.private = GaussianMechanism(self, self.settings.clip, self.settings.noise_multiplier)

    async def train_on(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + self.private.release(update)
        self.age += self.settings.local_steps
        self.observe("epsilon", self.private.epsilon(self.settings.delta))
