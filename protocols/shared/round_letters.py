"""What partners send each other in a round beside their models: a letter of its own for each, and its answer.

A letter is of one round. It waits in the mailbox for who has yet to get there, and is sent again to who has
missed it, as models are in `protocols.shared.rounds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from protocols.shared.rounds import RoundLearner, delay_s

L = TypeVar("L")


class LetterRounds(RoundLearner):
    """A client that exchanges letters with its partners: frozen dataclasses with the fields `round`,
    `repeated`, `attempt` and `delayed` of a `RoundModel`, each class listed in `collected`."""

    wanted: ClassVar[type]
    """What asks for a letter again: a frozen dataclass with the fields `round` and `attempt`."""
    posted: Mapping[str, Any] = {}
    """The last letter to each partner, of this round or the one before."""

    def post(self, peer: str, letter: Any) -> None:
        """Send a partner its letter of this round."""
        self.posted = {**self.posted, peer: letter}
        self.tell(peer, letter)

    async def letters_from(
        self, kind: type[L], partners: Iterable[str], patience: float, reminder: object
    ) -> dict[str, L]:
        """The letters of this round of those partners, who were posted theirs; `reminder` asks for one again.

        Who stays silent for `patience` seconds is missing.
        """
        names, began_s = list(partners), self.now

        def is_current(letter: Any) -> bool:
            return bool(letter.round == self.round)

        letters = await self.collect(kind, names, timeout=patience, where=is_current, reminder=reminder)
        # The other end may still be at the round before.
        recent = [(peer, last) for peer, last in self.posted.items() if last.round >= self.round - 1]
        self.posted = dict(recent)
        usual_s = self.round_trips.usual_s(names, kind)
        found: Iterable[Any] = letters.values()
        self.delayed += delay_s(found, self.now - began_s - usual_s)
        self.discard(kind, lambda letter: letter.round <= self.round)  # type: ignore[attr-defined]
        return letters

    def heard(self, message: object, sender: str) -> bool:
        """Post a letter again that a partner has missed."""
        done = super().heard(message, sender)
        if isinstance(message, self.wanted):
            wanted: Any = message
            self.post_again(sender, wanted.round, wanted.attempt)
            return True
        return done

    def post_again(self, peer: str, number: int, attempt: int) -> None:
        """A partner has missed its letter of a round; if it has yet to be written, it will come."""
        letter = self.posted.get(peer)
        if letter is not None and letter.round == number:
            self.tell(peer, replace(letter, repeated=True, attempt=attempt))
