"""What every kind of membership has: its keys, and the view that it gives each actor."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from actors.settings.base import Settings
from protocols.membership.view import MembershipView

ViewOf = Callable[[str, Sequence[str]], MembershipView]
"""The view that the actor of this name has, whose neighbours in the topology are these."""


@dataclass(frozen=True)
class MembershipContext:
    """What views are made from. up, absent: who is there at the start, and who comes later."""

    loop: asyncio.AbstractEventLoop
    seed: int
    up: Sequence[str]
    absent: Sequence[str]


class MembershipKind(Settings):
    """A way in which clients learn who is there."""

    @abstractmethod
    def views(self, context: MembershipContext) -> ViewOf:
        """What makes each actor's view, and holds what all of them share."""

    def periods(self, key: str) -> Iterator[tuple[str, float, str]]:
        """What each client does again and again: the key below `key`, the seconds between, and what it is."""
        yield from ()
