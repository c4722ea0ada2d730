"""Compressed gossip with error feedback: clients send only their largest changes (CHOCO-SGD).

Koloskova, Stich, Jaggi, "Decentralized Stochastic Optimization and Gossip Algorithms with Compressed
Communication", ICML 2019. Each client keeps a public model, and its peers keep copies of it. A client
sends the k largest values of the difference between its model and its public model; the other values
remain in the difference. Then it moves towards the peers' public models.

A receiver can use a difference only if it has received all earlier ones. A client therefore counts its
messages. A receiver that finds a gap in a peer's counter requests the peer's public model.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from coterie import Client, Count, Duration, PeerUnavailable, PerPeer, Rounds, Vector


@dataclass(frozen=True)
class Change:
    """The largest values of a change, and their positions. `number` counts the sender's changes, from 1."""

    values: Vector
    places: Vector
    number: int


@dataclass(frozen=True)
class Ask:
    """A request for a public model."""


@dataclass(frozen=True)
class Public:
    params: Vector
    number: int


def largest(change, k):
    places = change.abs().topk(k).indices
    return change[places], places.to(torch.int32)


def added(params, values, places):
    return params.scatter_add(0, places.long(), values)


class Choco(Client):
    class Settings(Client.Settings):
        local_steps: Count = 5
        patience: Duration = "10 s"
        share: Annotated[float, Field(gt=0, le=1)] = 0.1
        consensus: Annotated[float, Field(gt=0, le=1)] = 0.5

    collected = (Change,)  # these wait for gather()
    change = None  # before the first step

    def setup(self):
        start = Public(self.compute.initial(), 0)  # the same for all clients
        self.public = start
        self.copies = PerPeer(self, lambda: start)
        self.rounds = Rounds(self, self.settings.patience, announced=lambda: self.change)

    async def step(self):
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        k = max(1, round(self.settings.share * self.params.shape[0]))
        values, places = self.apply(largest, self.params - self.public.params, k=k)
        self.change = Change(values, places, self.public.number + 1)
        self.public = self.followed(self.public, self.change)
        self.rounds.announce()
        changes = await self.rounds.gather()
        for peer, change in changes.items():
            await self.follow(peer, change)
        pull = self.settings.consensus / (1 + len(changes))
        for copy in [self.copies[peer] for peer in changes if peer in self.copies]:  # some have left
            self.params = self.params + pull * (copy.params - self.public.params)

    def followed(self, public, change):
        return Public(self.apply(added, public.params, change.values, change.places), change.number)

    async def follow(self, peer, change):
        copy = self.copies[peer]
        if change.number == copy.number + 1:
            self.copies[peer] = self.followed(copy, change)
        elif change.number != copy.number:  # the clients were in separate rounds and missed changes
            try:
                self.copies[peer] = await self.ask(peer, Ask(), timeout=self.settings.patience)
                self.observe("asked", 1.0)
            except PeerUnavailable:
                pass  # the next change reveals the gap again

    async def on_message(self, message, sender):
        match message:
            case Ask():
                return self.public
