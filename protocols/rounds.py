"""Rounds with a barrier among neighbours: what the synchronous forms of all methods share.

A client announces its model for a round and waits for those of its neighbours, and for nobody else. There is no global
barrier: two clients without a common neighbour may be several rounds apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols import learner
from protocols.vectors import Vector


@dataclass(frozen=True)
class RoundModel:
    """The sender's parameters at the start of `round`, at `time` (seconds), and how many neighbours it counts."""

    params: Vector
    round: int
    degree: int
    time: float


class RoundLearner(learner.Learner):
    """A learner that can take part in rounds; `round` is the number of the current one.

    Silent neighbours are suspected after a patience, and left out until they are heard from. Who missed rounds (a
    newcomer, or one that was waited for in vain) sees the others' models of a later round and goes on from there.
    """

    collected: tuple[type, ...] = (RoundModel,)
    round = 0

    def announce(self) -> None:
        """Send the current model to all peers, for the current round."""
        peers = self.peers
        message = RoundModel(self.params, self.round, len(peers), self.now)
        for peer in peers:
            self.tell(peer, message)

    async def gather(self, patience: float) -> dict[str, RoundModel]:
        """The neighbours' models of the current round, once all have come or `patience` seconds have passed."""
        while True:
            peers = self.peers
            models = await self.collect(
                RoundModel, peers, timeout=patience, where=lambda model: model.round >= self.round
            )
            latest = max([model.round for model in models.values()], default=self.round)
            if latest == self.round:
                break
            # A neighbour sends round r + 1 only after round r. That its first message to us is of a later round
            # means that it went on without us.
            self.round = latest
            self.announce()
        self.discard(RoundModel, lambda model: model.round <= self.round)
        for peer in peers:
            if peer not in models:
                self.suspect(peer)
        for model in models.values():
            self.observe("staleness", self.now - model.time)
        return models
