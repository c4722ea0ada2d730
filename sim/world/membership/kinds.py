"""The base of all kinds of membership."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from actors.settings.base import Settings
from protocols.membership.view import MembershipView

ViewOf = Callable[[str, Sequence[str]], MembershipView]
"""(name, neighbours in the topology) -> the actor's view."""


@dataclass(frozen=True)
class MembershipContext:
    """What views are built from. up, absent: actors that are there at the start, and that come later."""

    loop: asyncio.AbstractEventLoop
    seed: int
    up: Sequence[str]
    absent: Sequence[str]


class MembershipKind(Settings):
    """A kind of membership: how clients learn who is there."""

    @abstractmethod
    def views(self, context: MembershipContext) -> ViewOf:
        """The function that makes each actor's view. It holds what all views share."""
