"""Scheduled partitions: times at which some names cannot reach some others, once or again and again."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Partition:
    """A cut of the network during `start_s <= time < end_s` (seconds of virtual time), in one of two forms.

    `groups`: names of different groups cannot reach each other, in either direction; names in no group reach
    everybody.  `sources` and `targets`: what a source sends to a target is cut; the way back stays open.
    With a period the cut flaps: it is there for the first `cut_share` of each `period_s` from the start on.
    Raises ValueError when the description is not exactly one of these.
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


class Partitions:
    """Answers whether a way is cut at some time."""

    def __init__(self, partitions: Sequence[Partition] = ()) -> None:
        self._cuts = tuple(_Cut(partition) for partition in partitions)
        self._first_start_s = min((cut.start_s for cut in self._cuts), default=math.inf)
        self._last_end_s = max((cut.end_s for cut in self._cuts), default=-math.inf)

    def cut(self, sender: str, receiver: str, time_s: float) -> bool:
        """Whether nothing from `sender` can reach `receiver` at `time_s`."""
        if (
            not self._first_start_s <= time_s < self._last_end_s
        ):  # asked twice for every message, and mostly over here
            return False
        return any(cut.is_on(time_s) and cut.separates(sender, receiver) for cut in self._cuts)


class _Cut:
    """A `Partition` with its names looked up by hash."""

    def __init__(self, partition: Partition) -> None:
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
