"""Scheduled partitions: times at which some names cannot reach others, once or periodically."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings
from actors.settings.members import Groups, Members
from actors.settings.quantities import Duration, PositiveDuration, ShareAboveZero
from sim.kernel.random import RandomStream
from sim.world.participants import Participants


@dataclass(frozen=True)
class Cut:
    """A cut of the network during `start_s <= time < end_s` (seconds of virtual time), in one of two forms.

    groups: names of different groups cannot reach each other. Names in no group reach everybody.
    sources, targets: messages from a source to a target are lost. The other direction stays open.
    period_s, cut_share: a flapping cut holds for the first `cut_share` of each period from the start on.
    ValueError for anything but exactly one form.
    """

    start_s: float
    end_s: float
    groups: tuple[tuple[str, ...], ...] = ()
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    period_s: float = math.inf
    cut_share: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.start_s < self.end_s):
            raise ValueError(
                f"partition: 0 <= start < end is needed, got {self.start_s!r} s and {self.end_s!r} s"
            )
        if not self.period_s > 0 or not 0 < self.cut_share <= 1:
            raise ValueError(
                f"partition: a positive period and a share of it in (0, 1] are needed, "
                f"got {self.period_s!r} s and {self.cut_share!r}"
            )
        if self.period_s == math.inf and self.cut_share != 1:
            raise ValueError("partition: without a period the cut is whole")
        if bool(self.groups) == bool(self.sources or self.targets):
            raise ValueError("partition: give either groups, or sources and targets")
        if bool(self.sources) != bool(self.targets):
            raise ValueError("partition: a one-way cut needs both sources and targets")
        if len(self.groups) == 1 or not all(self.groups):
            raise ValueError("partition: at least two groups are needed, and none may be empty")
        for name, times in Counter(name for group in self.groups for name in group).items():
            if times > 1:
                raise ValueError(f"partition: {name!r} is named {times} times in the groups")


class Flapping(Settings):
    """A cut that comes and goes."""

    period: PositiveDuration
    """Time from one beginning of the cut to the next."""
    share: ShareAboveZero
    """Share of each period in which the cut holds."""


class NetworkPartition(Settings):
    """A time in which some clients cannot reach others."""

    start: Duration
    """Begin of the cut."""
    end: PositiveDuration
    """End of the cut."""
    groups: Groups | None = None
    """Groups that are cut off from each other, in both directions. Clients in no group reach everybody."""
    share: ShareAboveZero | None = None
    """Each client is cut off with this probability, drawn once for each: from the servers and from all
    clients that are not cut off, in both directions."""
    sources: Members | None = Field(None, alias="from")
    """One-way cut: messages of these to those in `to` are lost."""
    to: Members | None = None
    """One-way cut: the receivers."""
    flapping: Flapping | None = None
    """Between start and end the cut comes and goes."""

    @model_validator(mode="after")
    def _consistent(self) -> "NetworkPartition":
        if self.end <= self.start:
            raise SettingError("end", self.end, f"must be after start ({self.start:g} s)")
        one_way = (self.sources, self.to) != (None, None)
        if self.groups is not None and self.share is not None:
            raise SettingError("share", self.share, "state either 'groups' or 'share', not both")
        if one_way and (self.groups is not None or self.share is not None):
            key = "groups" if self.share is None else "share"
            raise SettingError(key, getattr(self, key), f"state either '{key}' or 'from' and 'to', not both")
        if one_way and (self.sources is None or self.to is None):
            raise SettingError("to" if self.to is None else "from", None, "state both 'from' and 'to'")
        if not one_way and self.groups is None and self.share is None:
            raise SettingError(
                "groups", None, "state 'groups' or 'share' (two-way cut), or both 'from' and 'to' (one-way)"
            )
        if self.groups is not None and len(self.groups) < 2:
            raise SettingError("groups", self.groups, "needs two groups or more, to cut one off from another")
        return self

    def build(self, number: int, participants: Participants) -> Cut | None:
        """Entry `number` as a cut. None if one side of it is empty. UserError."""
        groups: tuple[tuple[str, ...], ...] = ()
        if self.groups is not None:
            groups = participants.groups(self.groups, f"network.partition.{number}.groups")
        elif self.share is not None:
            groups = self._drawn(self.share, number, participants)
        groups = tuple([group for group in groups if group])
        sources, targets = participants.members(self.sources or ()), participants.members(self.to or ())
        if len(groups) < 2 and not (sources and targets):
            return None
        return Cut(
            self.start,
            self.end,
            groups=groups,
            sources=sources,
            targets=targets,
            period_s=math.inf if self.flapping is None else self.flapping.period,
            cut_share=1.0 if self.flapping is None else self.flapping.share,
        )

    def _drawn(self, share: float, number: int, participants: Participants) -> tuple[tuple[str, ...], ...]:
        """The names that are cut off, and all others."""
        # Drawn for each client by itself, so that one more client changes nobody's side.
        coins = {
            name: RandomStream(participants.seed, "partition", number, name).uniform()
            for name in participants.clients
        }
        away = tuple([name for name, coin in coins.items() if coin < share])
        return away, tuple([name for name in participants.names if coins.get(name, 1.0) >= share])


class Partitions:
    """All cuts of a run."""

    def __init__(self, partitions: Sequence[Cut] = ()) -> None:
        self._cuts = tuple(_Separation(partition) for partition in partitions)
        self._first_start_s = min((cut.start_s for cut in self._cuts), default=math.inf)
        self._last_end_s = max((cut.end_s for cut in self._cuts), default=-math.inf)

    def cut(self, sender: str, receiver: str, time_s: float) -> bool:
        """Whether nothing from `sender` can reach `receiver` at `time_s`."""
        if (
            not self._first_start_s <= time_s < self._last_end_s
        ):  # the common case; this is called twice for every message
            return False
        return any(cut.is_on(time_s) and cut.separates(sender, receiver) for cut in self._cuts)


class _Separation:
    """A `Cut` with hashed names."""

    def __init__(self, partition: Cut) -> None:
        self.start_s = partition.start_s
        self.end_s = partition.end_s
        self._period_s = partition.period_s
        self._cut_s = partition.period_s * partition.cut_share  # of each period
        self._one_way = bool(partition.sources)
        self._sources = frozenset(partition.sources)
        self._targets = frozenset(partition.targets)
        self._group_of = {name: number for number, group in enumerate(partition.groups) for name in group}

    def is_on(self, time_s: float) -> bool:
        if not self.start_s <= time_s < self.end_s:
            return False
        return self._period_s == math.inf or (time_s - self.start_s) % self._period_s < self._cut_s

    def separates(self, sender: str, receiver: str) -> bool:
        if self._one_way:
            return sender in self._sources and receiver in self._targets
        ours, theirs = self._group_of.get(sender), self._group_of.get(receiver)
        return ours is not None and theirs is not None and ours != theirs
