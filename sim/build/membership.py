"""How each client learns who is there."""

from __future__ import annotations

from collections.abc import Sequence

from sim.scenario import Scenario
from sim.world.membership import AllKnowing, Announced, Directory, Membership


class MembershipMaker:
    """Makes the membership of each actor of a run, and what they share."""

    def __init__(self, scenario: Scenario, up: Sequence[str], absent: Sequence[str]) -> None:
        """`up`, `absent`: who is there at the start, and who comes later."""
        self._settings = scenario.network.membership
        self._absent = absent
        self._directory = Directory(up)

    def make(self, name: str, neighbours: Sequence[str]) -> Membership:
        """The view that `name` has of its neighbours in the topology."""
        match self._settings.kind:
            case "all-knowing":
                return AllKnowing(name, neighbours, self._directory)
            case "announce":
                return Announced(name, neighbours, self._absent)
        raise AssertionError(f"no membership is called {self._settings.kind!r}")
