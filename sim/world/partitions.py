"""Scheduled partitions: times at which some names cannot reach others, once or periodically."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings
from actors.settings.quantities import Duration, PositiveDuration, ShareAboveZero
from sim.kernel.random import RandomStream
from sim.members import Groups, Members, is_one_client
from sim.world.participants import Participants
from sim.world.periods import is_within, place_in_period


@dataclass(frozen=True)
class ScheduledPartition:
    """Partition of the network, in one of two forms, during `start_s <= time < end_s` (virtual seconds).

    groups: names of different groups cannot reach each other. Names in no group reach all names.
    sources, targets: messages from a source to a target are lost. The other direction stays open.
    period_s, active_share: a flapping partition holds for the first `active_share` of each period from the
    start.
    """

    start_s: float
    end_s: float
    groups: Sequence[Collection[str]] = ()
    sources: frozenset[str] = frozenset()
    targets: frozenset[str] = frozenset()
    period_s: float = math.inf
    active_share: float = 1.0

    @cached_property
    def _group_of(self) -> dict[str, int]:
        return {name: number for number, group in enumerate(self.groups) for name in group}

    def is_on(self, time_s: float) -> bool:
        """Return True if the partition holds at this time."""
        if not self.start_s <= time_s < self.end_s:
            return False
        _, share = place_in_period(time_s - self.start_s, self.period_s)
        return is_within(share, self.active_share)

    def separates(self, sender: str, receiver: str) -> bool:
        """Return True if no message from `sender` reaches `receiver` while the partition holds."""
        if self.sources:
            return sender in self.sources and receiver in self.targets
        ours, theirs = self._group_of.get(sender), self._group_of.get(receiver)
        return ours is not None and theirs is not None and ours != theirs


class Flapping(Settings):
    """Partition that holds for a part of each period."""

    period: PositiveDuration
    """Time from one start of the partition to the next."""
    share: ShareAboveZero
    """Share of each period in which the partition holds."""


class NetworkPartition(Settings):
    """Period in which some clients cannot reach others."""

    start: Duration
    """Start of the partition."""
    end: PositiveDuration
    """End of the partition."""
    groups: Groups | None = None
    """Groups that are cut off from each other, in both directions. Clients in no group reach all clients."""
    share: ShareAboveZero | None = None
    """Probability that a client is cut off, drawn once for each client. The cut is in both directions, from
    the servers and from all clients that are not cut off."""
    sources: Members | None = Field(None, alias="from")
    """One-way partition: messages from these clients to the clients in `to` are lost."""
    to: Members | None = None
    """One-way partition: the receivers."""
    flapping: Flapping | None = None
    """Between `start` and `end`, the partition holds only for a part of each period."""

    @model_validator(mode="after")
    def _consistent(self) -> "NetworkPartition":
        if self.end <= self.start:
            raise SettingError("end", self.end, f"must be after start ({self.start:g} s)")
        forms = {"groups": self.groups, "share": self.share, "from": self.sources, "to": self.to}
        stated = [key for key, value in forms.items() if value is not None]
        if stated not in (["groups"], ["share"], ["from", "to"]):
            problem = "set either 'groups' or 'share' (two-way), or both 'from' and 'to' (one-way)"
            raise SettingError(stated[-1] if stated else "groups", None, problem)
        if self.groups is not None and len(self.groups) < 2:
            raise SettingError(
                "groups", self.groups, "needs at least two groups that are cut off from each other"
            )
        if is_one_client((*(self.sources or ()), *(self.to or ()))):
            raise SettingError("to", self.to, "cuts a client off from itself; name a different client")
        return self

    def build(self, number: int, participants: Participants) -> ScheduledPartition | None:
        """Return the partition of entry `number`. None if one side of it is empty. Raises UserError."""
        groups: tuple[tuple[str, ...], ...] = ()
        if self.groups is not None:
            groups = participants.groups(self.groups, f"network.partition.{number}.groups")
        elif self.share is not None:
            groups = self._drawn(self.share, number, participants)
        groups = tuple([group for group in groups if group])
        sources, targets = participants.members(self.sources or ()), participants.members(self.to or ())
        if len(groups) < 2 and not (sources and targets):
            return None
        period_s, share = (
            (math.inf, 1.0) if self.flapping is None else (self.flapping.period, self.flapping.share)
        )
        return ScheduledPartition(
            self.start, self.end, groups, frozenset(sources), frozenset(targets), period_s, share
        )

    def _drawn(self, share: float, number: int, participants: Participants) -> tuple[tuple[str, ...], ...]:
        """Return the names that are cut off, and all others."""
        # A separate draw for each client, so that one more client does not change the sides of others.
        coins = {
            name: RandomStream(participants.seed, "partition", number, name).uniform()
            for name in participants.clients
        }
        away = tuple([name for name, coin in coins.items() if coin < share])
        return away, tuple([name for name in participants.names if coins.get(name, 1.0) >= share])


class ScheduledPartitions:
    """All partitions of a run."""

    def __init__(self, partitions: Sequence[ScheduledPartition] = ()) -> None:
        self._partitions = partitions
        self._first_start_s = min((each.start_s for each in partitions), default=math.inf)
        self._last_end_s = max((each.end_s for each in partitions), default=-math.inf)

    def separate(self, sender: str, receiver: str, time_s: float) -> bool:
        """Return True if no message from `sender` can reach `receiver` at `time_s`."""
        # Most of the time there is no partition, and the network calls this twice for every message.
        if not self._first_start_s <= time_s < self._last_end_s:
            return False
        return any(each.is_on(time_s) and each.separates(sender, receiver) for each in self._partitions)
