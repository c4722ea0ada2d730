"""Latency over time from a file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from actors.settings.quantities import SigmaOfLog
from sim.files.input_file import InputFile
from sim.files.rows import read_cycle
from sim.kernel.random import RandomStream
from sim.world.latency.nodes import LATENCY_MAX_S, LatencyByNode
from sim.world.participants import Participants
from sim.world.repeated_files import ConnectionTable, RepeatedFile


class TableLatency(LatencyByNode, RepeatedFile):
    """Latency over time from a table, which is repeated.

    CSV or .parquet file with the columns `time_s`, from 0 on, and `latency_ms`, which applies to messages
    whose last bit leaves from that time on. The last row ends the cycle; its latency is ignored. The sender's
    position in the table applies. For messages of a server, the receiver's position applies.
    """

    kind: Literal["table"]
    jitter: SigmaOfLog = 0.0
    """Sigma of a lognormal factor with median 1, drawn for each message and multiplied with the pair's
    latency."""

    def build(self, key: str, participants: Participants) -> LatencyOverTime:
        """Return the latencies of these participants. Raises UserError."""
        source = InputFile(f"{key}.file", Path(self.file))
        times_s, latencies_ms = read_cycle(source, "latency_ms", 0, LATENCY_MAX_S * 1e3)
        seconds = [each / 1e3 for each in latencies_ms]
        return LatencyOverTime(ConnectionTable(self, times_s, seconds, participants), self.jitter)


@dataclass(frozen=True)
class LatencyOverTime:
    """Latency at the moment when a message departs, times a jitter drawn for each message."""

    table: ConnectionTable
    jitter: float

    @property
    def has_randomness(self) -> bool:
        return self.jitter > 0

    def sample(self, pair: tuple[str, str], time_s: float, draws: RandomStream) -> float:
        """Return a message's latency in seconds at departure time `time_s`. Jitter takes one of `draws`."""
        table = self.table
        seconds = table.values[table.row(table.position_s(pair, time_s))]
        return seconds * math.exp(self.jitter * draws.normal()) if self.jitter else seconds
