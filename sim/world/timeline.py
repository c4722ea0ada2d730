"""Busy and down times of a device, in bounded memory."""

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

State = Literal["waiting", "busy", "down"]


class Timeline:
    """Intervals in which a device was busy or down, in order. Between them it was waiting.

    Adjacent intervals of one state are merged. Memory is bounded: beyond `limit` intervals, the shorter half
    of the gaps between intervals of one state is closed. `resolution_s` is the longest gap that may have been
    closed so far (0: no gap). Only changes between busy and down, which churn bounds, can exceed the limit.
    """

    __slots__ = ("_compact_at", "_state", "_states", "_times_s", "limit", "resolution_s")

    def __init__(self, limit: int = 1_000) -> None:
        self.limit = limit
        self.resolution_s = 0.0
        self._compact_at = limit
        self._times_s = array("d")  # start, end, start, end, ...
        self._states: list[tuple[int, State]] = []  # (index of an interval, state from this interval on)
        self._state: State | None = None  # of the last interval

    def __len__(self) -> int:
        return len(self._times_s) // 2

    def __iter__(self) -> Iterator[tuple[float, float, State]]:
        """Yield the intervals as (start_s, end_s, state)."""
        times_s = self._times_s
        ends = [first for first, _ in self._states[1:]] + [len(self)]
        for (first, state), end in zip(self._states, ends, strict=False):
            for index in range(2 * first, 2 * end, 2):
                yield times_s[index], times_s[index + 1], state

    def add(self, start_s: float, end_s: float, state: State) -> None:
        """Append an interval that starts at the end of the last one, or later. An empty one is omitted."""
        if start_s == end_s:
            return
        times_s = self._times_s
        if state != self._state:
            self._states.append((len(self), state))
            self._state = state
        elif start_s - times_s[-1] <= self.resolution_s:
            times_s[-1] = end_s
            return
        times_s.append(start_s)
        times_s.append(end_s)
        if len(times_s) > 2 * self._compact_at:
            self._compact()

    def _compact(self) -> None:
        stretches = list(self)
        gaps_s = sorted(
            later[0] - earlier[1] for earlier, later in pairwise(stretches) if earlier[2] == later[2]
        )
        if gaps_s:
            self.resolution_s = gaps_s[(len(gaps_s) - 1) // 2]
        self._compact_at = 2 * len(stretches)  # no compaction during the loop below
        self._times_s, self._states, self._state = array("d"), [], None
        for stretch in stretches:
            self.add(*stretch)
        # If few gaps were closed, wait until the length has doubled. The cost per interval stays small.
        left = len(self)
        self._compact_at = self.limit if left <= 0.75 * self.limit else 2 * left
