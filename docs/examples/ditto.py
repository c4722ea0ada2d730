"""Ditto: a common model by federated averaging, and a personal model of each client, pulled towards it.

Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021. The
personal model v minimizes the client's own loss plus strength / 2 |v - w|^2, where w is the common model.
Evaluations use v.
"""

from coterie import Contribution, Count, RoundClient, RoundServer, RoundSettings, Weight


class Ditto(RoundClient):
    class Settings(RoundSettings):
        strength: Weight = 0.5
        personal_steps: Count = 5

    server = RoundServer

    async def work(self, task):
        """Train the common model, which is the answer, and the personal model, which stays at the client."""
        common = await self.trained(task.params)
        proximal = [(self.settings.strength, task.params)]
        update = await self.train(self.settings.personal_steps, proximal=proximal, fresh_optimizer=True)
        self.params = self.params + update
        return Contribution(common, self.samples)

    def learn(self, news):
        """Do nothing: the client does not use the common model between two rounds."""
