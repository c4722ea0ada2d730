"""Files with values over time that are repeated, and the position of each actor in them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from actors.settings.base import Settings
from actors.settings.quantities import Duration
from sim.files.named_files import BesideFile
from sim.kernel.random import RandomStream
from sim.world.participants import Participants


class RepeatedFile(Settings):
    """Values over time in a file, which is repeated."""

    file: Annotated[BesideFile, Field(min_length=1)]
    """The path is relative to the current folder or, if it does not exist there, to the folder of the
    scenario."""
    offset: Literal["random"] | Duration = "random"
    """Position in the file at which the run starts: drawn for each client, as the same share of the cycle in
    all files, or the same for all clients."""

    def offset_s(self, seed: int, name: str, cycle_s: float) -> float:
        """Return an actor's position at the start of the run, in seconds from 0 to less than `cycle_s`."""
        if self.offset == "random":
            return cycle_s * RandomStream(seed, "offset of bandwidths", name).uniform() % cycle_s
        return self.offset % cycle_s


@dataclass(frozen=True, eq=False)
class ConnectionTable:
    """Values of connections over time, from a file.

    values[k] applies from times_s[k] to times_s[k + 1]. The sender's position in the file applies. If the
    sender is a server, the receiver's position applies.
    """

    settings: RepeatedFile
    times_s: Sequence[float]
    values: Sequence[float]
    participants: Participants
    _offsets_s: dict[str, float] = field(default_factory=dict, init=False)

    def position_s(self, pair: tuple[str, str], time_s: float) -> float:
        """Return the position in the file for this pair, sender first, at a virtual time."""
        name = pair[1] if pair[0] in self.participants.servers else pair[0]
        offset_s = self._offsets_s.get(name)
        if offset_s is None:
            offset_s = self.settings.offset_s(self.participants.seed, name, self.times_s[-1])
            self._offsets_s[name] = offset_s
        return (offset_s + time_s) % self.times_s[-1]

    def row(self, position_s: float) -> int:
        """Return the number of the row that applies at a position."""
        return bisect_right(self.times_s, position_s) - 1
