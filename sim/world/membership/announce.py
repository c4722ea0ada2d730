"""Clients announce when they come and go."""

from typing import Literal

from protocols.membership.view import AnnouncedView
from sim.world.membership.kinds import MembershipContext, MembershipKind, ViewOf


class Announce(MembershipKind):
    """Clients say hello and goodbye to their neighbours. A crash shows by timeouts only."""

    kind: Literal["announce"]

    def views(self, context: MembershipContext) -> ViewOf:
        return lambda name, neighbours: AnnouncedView(name, neighbours, context.absent)
