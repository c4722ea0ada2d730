"""When a device was busy or down, in bounded memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

State = Literal["waiting", "busy", "down"]


class Timeline:
    """The stretches of virtual time that a device was busy or down, in order; it was waiting in between.

    Stretches of one state that touch are one. Memory is bounded: past `limit` stretches the shorter half of
    the gaps between stretches of one state is closed, and `resolution_s` is the longest gap that may have
    vanished so far (0: none). Only changes between busy and down, which churn bounds, can take it over the
    limit. ValueError for a limit below 4.
    """

    __slots__ = ("_compact_at", "_state", "_states", "_times_s", "limit", "resolution_s")

    def __init__(self, limit: int = 1_000) -> None:
        if limit < 4:
            raise ValueError(f"a timeline needs room for 4 stretches or more, not {limit}")
        self.limit = limit
        self.resolution_s = 0.0
        self._compact_at = limit
        self._times_s = array("d")  # start and end of each stretch, one after the other
        self._states: list[tuple[int, State]] = []  # which state it is from which stretch on
        self._state: State | None = None  # of the last stretch

    def __len__(self) -> int:
        return len(self._times_s) // 2

    def __iter__(self) -> Iterator[tuple[float, float, State]]:
        """The stretches as (start_s, end_s, state)."""
        times_s = self._times_s
        ends = [first for first, _ in self._states[1:]] + [len(self)]
        for (first, state), end in zip(self._states, ends, strict=False):
            for place in range(2 * first, 2 * end, 2):
                yield times_s[place], times_s[place + 1], state

    def add(self, start_s: float, end_s: float, state: State) -> None:
        """Append a stretch, which must not begin before the last one ended; an empty one leaves no mark."""
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
        self._compact_at = 2 * len(stretches)  # no second compaction while the stretches are put back
        self._times_s, self._states, self._state = array("d"), [], None
        for stretch in stretches:
            self.add(*stretch)
        # Where little could be closed, wait until the length has doubled: the cost per stretch stays small.
        left = len(self)
        self._compact_at = self.limit if left <= 0.75 * self.limit else 2 * left
