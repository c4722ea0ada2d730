"""Loss over time from a file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Literal

from sim.files.input_file import InputFile
from sim.files.rows import read_cycle
from sim.kernel.random import RandomStream
from sim.world.loss.models import LossModel, LossProcess
from sim.world.participants import Participants
from sim.world.repeated_files import ConnectionTable, RepeatedFile

_PIECES_MAX = 10_000
_NEVER_S = 36_500 * 86_400.0  # longer than any run


class TableLoss(LossModel, RepeatedFile):
    """Loss over time from a table, which is repeated.

    CSV or .parquet file with the columns `time_s`, from 0 on, and `loss`, the probability from 0 to 1 that a
    transmission from that time on is lost; on a reliable link, each retransmission has the loss of its time.
    The last row ends the cycle; its loss is ignored. The sender's position in the table applies. For messages
    of a server, the receiver's position applies.
    """

    kind: Literal["table"]

    @property
    def cycle(self) -> None:
        return None

    def build(self, key: str, participants: Participants) -> LossOverTime:
        """Return the losses between these participants. Raises UserError."""
        source = InputFile(f"{key}.file", Path(self.file))
        times_s, losses = read_cycle(source, "loss", 0, 1)
        if min(losses) == 1:
            raise source.refusal("has no row with loss < 1 before the last one")
        # Neighboring rows with the same loss become one.
        rows = [next(group) for _, group in groupby(zip(losses, times_s, strict=False), key=itemgetter(0))]
        starts_s = [start_s for _, start_s in rows]
        table = ConnectionTable(self, [*starts_s, times_s[-1]], [loss for loss, _ in rows], participants)
        return LossOverTime(table)


@dataclass(frozen=True)
class LossOverTime:
    """PairLosses of all connections, from a table."""

    table: ConnectionTable

    @cached_property
    def rate(self) -> float:
        """Share of the transmissions that are lost in the long run."""
        times_s, losses = self.table.times_s, self.table.values
        lost_s = [loss * (end - start) for loss, (start, end) in zip(losses, pairwise(times_s), strict=True)]
        return math.fsum(lost_s) / times_s[-1]

    def on(self, seed: int, pair: tuple[str, str]) -> LossProcess | None:
        """Return the loss process of this pair's connection. None if no transmission is ever lost."""
        return _FromTable(self.table, pair, RandomStream(seed, "loss", *pair)) if self.rate else None


class _FromTable(LossProcess):
    __slots__ = ("_pair", "_table")

    def __init__(self, table: ConnectionTable, pair: tuple[str, str], draws: RandomStream) -> None:
        super().__init__(draws)
        self._table = table
        self._pair = pair

    def lost(self, time_s: float) -> bool:
        table = self._table
        return self.draws.uniform() < table.values[table.row(table.position_s(self._pair, time_s))]

    def repetitions(self, time_s: float, every_s: float) -> int:
        # By inversion, with one number for all repetitions: the probability of k losses in a row is the
        # product of the k probabilities, and 1 - u is uniform in (0, 1]. Transmissions in one row of the
        # table are counted together.
        count, left = 0, math.log(1 - self.draws.uniform())
        for loss, tries in self._rows(time_s, every_s):
            if loss == 0:
                return count
            log_loss = math.log(loss)
            if loss < 1 and (more := int(left / log_loss)) < tries:
                return count + more
            left = min(0.0, left - tries * log_loss)
            count += int(tries)
        # The interval of the retransmissions may divide the cycle, so that none falls into a row with less
        # loss: the message never arrives.
        return count + math.ceil(_NEVER_S / every_s)

    def _rows(self, time_s: float, every_s: float) -> Iterator[tuple[float, float]]:
        """Yield the loss probability of each row of the table, and the number of transmissions in it."""
        table = self._table
        if len(table.values) == 1:
            yield table.values[0], math.inf
            return
        cycle_s = table.times_s[-1]
        position_s = table.position_s(self._pair, time_s)
        for _ in range(_PIECES_MAX):
            row = table.row(position_s)
            tries = max(1, math.ceil((table.times_s[row + 1] - position_s) / every_s))
            yield table.values[row], tries
            position_s = (position_s + tries * every_s) % cycle_s
