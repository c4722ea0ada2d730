"""Some clients attack by sending their model with the opposite sign. The others take the median, or the mean.

A sign-flipping attack (Li et al. 2019) on gossip in rounds. An attacker trains like all other clients, and
only its messages are false: it is evaluated on its own, honest model.
"""

from typing import Literal

import torch
from pydantic import NonNegativeInt

from coterie import Client, Count, Duration, RoundModel, Rounds


def median(*models):
    return torch.stack(models).sort(dim=0).values[(len(models) - 1) // 2]


def mean(*models):
    return torch.stack(models).mean(dim=0)


RULES = {"median": median, "mean": mean}


class Attacked(Client):
    class Settings(Client.Settings):
        local_steps: Count = 5
        patience: Duration = "10 s"
        attackers: NonNegativeInt = 2  # the number of attackers, which are the first clients
        rule: Literal["median", "mean"] = "median"

    collected = (RoundModel,)

    def setup(self):
        self.attacks = self.context.number < self.settings.attackers
        self.rounds = Rounds(self, self.settings.patience, announced=self.announced)

    def announced(self):  # the message to all peers, instead of the model
        told = -1 * self.params if self.attacks else self.params
        return RoundModel(told, len(self.peers), self.now)

    async def step(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        self.rounds.announce()
        models = await self.rounds.gather()
        rule = RULES[self.settings.rule]
        self.params = self.apply(rule, self.params, *[model.params for model in models.values()])
