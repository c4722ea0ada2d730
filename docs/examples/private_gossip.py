"""Gossip of private models: each update is clipped and gets noise before it enters any model.

Unless `noise_multiplier` is 0, all models that a client sends are therefore private. An observer of all of
them learns little about whether the client has trained at all: (epsilon, delta)-differential privacy of all
data of a client, for the observed epsilon. Mixing has no privacy cost. Much noise needs many clients, because
it averages out over mixed models.
"""

from typing import Annotated

from coterie import GaussianMechanism, PositiveWeight, Weight, Within
from protocols.decentralized.gossip import Gossip


class PrivateGossip(Gossip):
    class Settings(Gossip.Settings):
        clip: PositiveWeight = 1.0
        """Maximum norm of an update."""
        noise_multiplier: Weight = 1.0
        """Standard deviation of the noise relative to `clip`; 0 means no noise."""
        delta: Annotated[float, Within(1e-12, 0.1)] = 1e-5

    def setup(self):
        super().setup()
        self.private = GaussianMechanism(self, self.settings.clip, self.settings.noise_multiplier)

    async def train_on(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + self.private.release(update)
        self.age += self.settings.local_steps
        self.observe("epsilon", self.private.epsilon(self.settings.delta))
