# %% [markdown]
# # Compare your own method with CoBo under message loss
#
# This notebook shows how to write a method and compare it with another one. Six clients form two groups that label digits differently. The network
# loses every fifth message. CoBo learns the groups. The method below pulls the model of a random peer, and keeps the mean of both models if it is
# better on held-out samples.

# %%
from dataclasses import dataclass

import coterie
from coterie import Client, PeerUnavailable, Vector

WORLD = {
    "run": {"duration": "1 min", "evaluate_every": "10 s", "seed": 1},
    "clients": {"count": 6},
    "data": {
        "name": "digits",
        "partition": {"kind": "permuted-clusters", "clusters": 2, "samples_per_client": 60},
        "test_samples": 100,
        "validation_share": 0.2,
    },
    "model": {"name": "mlp", "hidden": [32]},
    "training": {"learning_rate": 0.05, "batch_size": 8},
    "protocol": {"name": "cobo"},
    "network": {"latency": "20 ms", "uplink": "10 Mbit/s", "downlink": "10 Mbit/s", "loss": 0.2},
    "devices": {"step_time": "50 ms"},
}


# %%
@dataclass(frozen=True)
class Pull:
    """A request for the model of a peer."""


@dataclass(frozen=True)
class Model:
    params: Vector


class PullIfBetter(Client):
    async def step(self):
        update = await self.train(5)
        self.params = self.params + update
        try:
            answer = await self.ask(self.pick_peer(), Pull(), timeout=1.0, attempts=None)
        except PeerUnavailable:
            return
        mixed = (self.params + answer.params) / 2
        if await self.loss(mixed, on="validation") < await self.loss(self.params, on="validation"):
            self.params = mixed

    async def on_message(self, message, sender):
        return Model(self.params)


# %%
cobo = coterie.run(WORLD, quiet=True)
mine = coterie.run(WORLD, protocol=PullIfBetter, quiet=True)
alone = coterie.run(WORLD, protocol="local", quiet=True)
for run in (cobo, mine, alone):
    print(f"{run.summary['protocol']:<14}{run.summary['accuracy']['mean']:.3f}")

# %% [markdown]
# The graph that CoBo learned shows two blocks with the same number of clients.

# %%
cobo
