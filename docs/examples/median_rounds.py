"""In each round, clients train and take the coordinate-wise median of their own and neighbors' models."""

import torch

from coterie import Client, Count, Duration, RoundModel, Rounds


def median(*models):
    return torch.stack(models).sort(dim=0).values[(len(models) - 1) // 2]


class MedianRounds(Client):
    class Settings(Client.Settings):
        local_steps: Count = 5
        patience: Duration = "10 s"

    collected = (RoundModel,)  # these wait for gather()

    def setup(self):
        self.rounds = Rounds(self, self.settings.patience)

    async def step(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        self.rounds.announce()
        models = await self.rounds.gather()
        self.params = self.apply(median, self.params, *[model.params for model in models.values()])
