"""DivShare: models in fragments, each sent to a few random peers, one after another, during the training.

Biswas, Kermarrec, Sharma, Thibaud, de Vos, "Boosting Asynchronous Decentralized Learning with Model
Fragmentation", WWW 2025. No client waits for others: at the start of a round, a client averages each of its
fragments with the received ones, trains, and splits the result into new fragments, which replace all unsent
ones. A slow link therefore carries some fragments of every model instead of every tenth model.

In this implementation, each of `lanes` lanes sends a fragment when the previous one has arrived.
"""

import math
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import torch

from coterie import Client, Count, PeerUnavailable, PositiveDuration, Vector, default, mix


@dataclass(frozen=True)
class Fragment:
    number: int
    params: Vector


@dataclass(frozen=True)
class Arrived:
    """The confirmation to the sender of a fragment."""


def joined(*fragments):
    return torch.cat(fragments)


class DivShare(Client):
    class Settings(Client.Settings):
        local_steps: Count = 5
        fragments: Count = 10
        lanes: Count = 4
        patience: PositiveDuration = default("5 s")

    def __init__(self, *given):
        super().__init__(*given)
        [width] = self.params.shape
        ends = [round(width * k / self.settings.fragments) for k in range(self.settings.fragments + 1)]
        self.slices = [slice(first, end) for first, end in pairwise(ends) if end > first]
        self.received = [{} for _ in self.slices]  # the latest fragment of each peer since the last round
        self.waiting, self.sending = [], 0

    async def step(self):
        self.params = self.merged()
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        self.waiting = self.addressed()
        while self.sending < self.settings.lanes:
            self.sending += 1
            self.spawn(self.send())

    def merged(self):
        if not any(self.received):
            return self.params
        averages = []
        for columns, received in zip(self.slices, self.received, strict=True):
            share = 1 / (1 + len(received))
            averages.append(mix([(share, part) for part in [self.params[columns], *received.values()]]))
            received.clear()
        return self.apply(joined, *averages)

    def addressed(self):
        """Return pairs of a peer and a fragment for it, in random order."""
        peers, letters = self.peers, []
        for number, columns in enumerate(self.slices):
            count = min(len(peers), math.ceil(math.log2(len(peers) + 1)))
            fragment = Fragment(number, self.params[columns])
            letters += [(peers[k], fragment) for k in self.rng.permutation(len(peers))[:count].tolist()]
        return [letters[k] for k in self.rng.permutation(len(letters)).tolist()]

    async def send(self):
        try:
            while self.waiting:
                peer, fragment = self.waiting.pop()
                with suppress(PeerUnavailable):  # the next round has other fragments
                    await self.ask(peer, fragment, timeout=self.settings.patience)
        finally:
            self.sending -= 1

    async def on_message(self, message, sender):
        match message:
            case Fragment(number, params):
                self.received[number][sender] = params
                return Arrived()
