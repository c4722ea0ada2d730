"""Compare gossip with your own method, which trains alone, in a network that loses 20% of the messages."""

import coterie
from coterie import Client


class Alone(Client):
    async def step(self):
        update = await self.train(5)
        self.params = self.params + update


if __name__ == "__main__":  # `coterie resume` imports this file and must not repeat the runs
    lossy = {"network.loss": 0.2, "run.duration": "1 min"}
    gossip = coterie.run("gossip", set=lossy, seed=1)
    alone = coterie.run("gossip", protocol=Alone, set=lossy, seed=1)  # the class itself
    for run in (gossip, alone):
        print(run.summary["protocol"], run.summary["accuracy"]["mean"])
