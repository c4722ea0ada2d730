"""FedeRiCo in rounds: owners of models wait for what others return, even if it is nothing."""

from __future__ import annotations

from protocols.federico.collaborators import Collaborators
from protocols.federico.messages import RoundUpdate, RoundUpdateWanted
from protocols.framework.vectors import Vector
from protocols.shared.rounds import RoundModel


class UpdateRounds(Collaborators):
    """A client that hears from all its partners, in each round, what they have for it."""

    collected = (RoundModel, RoundUpdate)
    wanted = RoundUpdateWanted

    async def returned(self, partners: list[str]) -> list[Vector]:
        """The updates of the own model by those partners that have chosen it."""
        letters = await self.letters_from(
            RoundUpdate, partners, self.settings.patience, RoundUpdateWanted(self.round)
        )
        return [letter.update for letter in letters.values() if letter.update is not None]
