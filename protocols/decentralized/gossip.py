"""Gossip learning: a client pushes its model to a random peer, which merges both models and trains.

Hegedus, Danner and Jelasity, "Gossip learning as a decentralized alternative to federated learning" (2019),
after Ormandi, Hegedus and Jelasity, "Gossip learning with linear models on fully distributed data" (2013).
Each client has its own timer, and no client waits for another:

    every `period`: send (x_i, age_i) to one random peer
    on (x_j, age_j): x_i <- merge(x_i, x_j); age_i <- max(age_i, age_j); x_i <- x_i - eta g_i(x_i) ...

Differences from the papers: models are sent whole (no subsampling or token account); a model is merged with
the client's current one (2019), not with the one received before it (2013). A client trains only when a model
arrives, so a client without peers stays at its initial model. A client that receives models faster than it
can train on them has a growing queue of ever older models, until its mailbox is full (`mailbox_overflows` in
the summary).

A client that has exhausted its budget continues to push and merge, because the other clients train only on
models that they receive. With `protocol.alone`, a client trains once in each period.
"""

from dataclasses import dataclass
from typing import Literal

from actors.settings.base import default
from actors.settings.quantities import Count, PositiveDuration
from protocols.framework.client import Client
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.search_space import LOCAL_STEPS, OneOf, SearchSpace
from protocols.framework.vectors import Vector, mix


@dataclass(frozen=True, kw_only=True)
class AgedModel:
    """Model with the number of training steps in its longest line of ancestors."""

    params: Vector
    age: int
    time: float


class Gossip(Client):
    """Client that pushes, merges and trains (always asynchronous)."""

    search_space = SearchSpace(
        "both merges, and the local work",
        {
            "merge": OneOf(("average", "age")),
            "local_steps": LOCAL_STEPS,
        },
    )

    class Settings(ProtocolSettings):
        """Push the model to random peers; the receiver merges both models and trains."""

        changing = ("period", "fanout", "local_steps", "merge")

        period: PositiveDuration = default("1 s")
        """Time between two pushes of a client; the first push is sent after a random part of this time."""
        fanout: Count = 1
        """Number of peers that get each push."""
        local_steps: Count = 1
        """Training steps after each merge."""
        merge: Literal["average", "age"] = "average"
        """Weights of the client's own and the received model: 1/2 each, or in proportion to their ages."""

    settings: Settings
    age = 0

    async def run(self) -> None:
        # A random phase: without it all clients would always push at the same instants.
        await self.sleep(float(self.rng.uniform(0.0, self.settings.period)))
        await super().run()
        while not self.context.alone:
            await self.step()

    async def step(self) -> None:
        receivers = self.gossip(self.pushed(), self.settings.fanout)
        await self.sleep(self.settings.period)
        if not receivers and self.context.alone:
            await self.train_on()

    def pushed(self) -> AgedModel:
        """Return the message that a push sends."""
        return AgedModel(params=self.params, age=self.age, time=self.now)

    async def on_message(self, message: object, sender: str) -> None:
        match message:
            case AgedModel() as other:
                self.context.report(self.name, "staleness", self.now - other.time)
                self.params = self.merged(other)
                self.age = max(self.age, other.age)
                await self.train_on()

    async def train_on(self) -> None:
        """Train the current model."""
        steps, left = self.settings.local_steps, self.compute.steps_left
        update = await self.train(steps)
        self.params = self.params + update
        self.age += steps if steps <= left else int(left)

    def merged(self, other: AgedModel) -> Vector:
        """Return the combination of the client's own and the received model."""
        total = self.age + other.age
        share = other.age / total if self.settings.merge == "age" and total else 0.5
        return mix([(1 - share, self.params), (share, other.params)])
