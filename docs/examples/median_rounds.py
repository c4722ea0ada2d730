"""Clients train, and take the coordinate-wise median of their neighbours' models and their own, in rounds."""

import torch

from protocols import Count, Duration, RoundLearner


def median(*models):
    return torch.stack(models).sort(dim=0).values[(len(models) - 1) // 2]


class MedianRounds(RoundLearner):
    class Settings(RoundLearner.Settings):
        local_steps: Count = 5
        patience: Duration = "10 s"

    async def step(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        self.announce()
        models = await self.gather(self.settings.patience)
        self.params = self.apply(median, self.params, *[model.params for model in models.values()])
        self.round += 1
