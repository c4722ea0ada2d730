"""How each client learns who is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sim.scenario.scenario import Scenario
from sim.settings import membership as kinds
from sim.world.active_membership import Bootstrapped, SamplingSettings, Swim
from sim.world.failure_detection import SwimSettings
from sim.world.membership import AllKnowing, Announced, Directory, Membership
from sim.world.peer_sampling import BootstrapService


class MembershipMaker:
    """Makes the membership of each actor of a run, and what they share."""

    def __init__(
        self, scenario: Scenario, loop: asyncio.AbstractEventLoop, up: Sequence[str], absent: Sequence[str]
    ) -> None:
        """`up`, `absent`: who is there at the start, and who comes later."""
        self._settings = scenario.network.membership
        self._alone = scenario.protocol.alone
        self._seed = scenario.run.seed
        self._loop = loop
        self._absent = absent
        self._directory = Directory(up)
        self._service = BootstrapService(self._seed, [*up, *absent], up)

    def make(self, name: str, neighbours: Sequence[str]) -> Membership:
        """The view that `name` has of its neighbours in the topology."""
        if self._alone:  # nobody to learn of, nor to be told by a service
            return Announced(name, ())
        match self._settings:
            case kinds.AllKnowing():
                return AllKnowing(name, neighbours, self._directory)
            case kinds.Announce():
                return Announced(name, neighbours, self._absent)
            case kinds.Swim() as swim:
                return Swim(name, neighbours, self._absent, self._loop, self._seed, _swim(swim))
            case kinds.Bootstrap() as bootstrap:
                return Bootstrapped(name, self._service, self._loop, self._seed, _sampling(bootstrap))


def _swim(settings: kinds.Swim) -> SwimSettings:
    return SwimSettings(
        settings.period,
        settings.timeout,
        settings.proxies,
        settings.suspicion,
        settings.news_per_message,
        reconnect_s=settings.reconnect,
    )


def _sampling(settings: kinds.Bootstrap) -> SamplingSettings:
    detection = settings.detection
    return SamplingSettings(
        settings.contacts,
        settings.view,
        settings.shuffle,
        settings.shuffle_every,
        _swim(detection) if isinstance(detection, kinds.Swim) else None,
    )
