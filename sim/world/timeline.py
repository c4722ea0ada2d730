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

    def __init__(self, limit: int = 1_000) -> None:
        if limit < 4:
            raise ValueError(f"a timeline needs room for 4 stretches or more, not {limit}")
        self.limit = limit
        self.resolution_s = 0.0
        self._compact_at = limit
        self._starts_s, self._ends_s = array("d"), array("d")
        self._states: list[State] = []

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[tuple[float, float, State]]:
        """The stretches as (start_s, end_s, state)."""
        return zip(self._starts_s, self._ends_s, self._states, strict=True)

    def add(self, start_s: float, end_s: float, state: State) -> None:
        """Append a stretch, which must not begin before the last one ended; an empty one leaves no mark."""
        if start_s == end_s:
            return
        states = self._states
        if states and states[-1] == state and start_s - self._ends_s[-1] <= self.resolution_s:
            self._ends_s[-1] = end_s
            return
        self._starts_s.append(start_s)
        self._ends_s.append(end_s)
        states.append(state)
        if len(states) > self._compact_at:
            self._compact()

    def _compact(self) -> None:
        stretches = list(self)
        gaps_s = sorted(
            later[0] - earlier[1] for earlier, later in pairwise(stretches) if earlier[2] == later[2]
        )
        if gaps_s:
            self.resolution_s = gaps_s[(len(gaps_s) - 1) // 2]
        self._compact_at = 2 * len(stretches)  # no second compaction while the stretches are put back
        self._starts_s, self._ends_s, self._states = array("d"), array("d"), []
        for stretch in stretches:
            self.add(*stretch)
        # Where little could be closed, wait until the length has doubled: the cost per stretch stays small.
        left = len(self._states)
        self._compact_at = self.limit if left <= 0.75 * self.limit else 2 * left
