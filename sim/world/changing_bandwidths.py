"""Bandwidths that change over time, as read from files: tables, and the traces of mahimahi."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from actors.settings.base import default
from actors.settings.quantities import PositiveDuration
from sim.files.input_file import InputFile
from sim.files.rows import read_cycle
from sim.world.devices.slowness import Piece, repeated_slowness
from sim.world.repeated_files import RepeatedFile

PACKET_BITS = 8 * 1500
"""Size of the packets of a mahimahi trace."""
_MBPS_MAX = 1e9
_PACKETS_MAX = 10_000_000
_STEPS_MAX = 10_000_000
_ROUNDING = 1e-9  # of the number of steps up to a time
_MS_MAX = 10**12


class ChangingBandwidth(RepeatedFile):
    """Bandwidth over time from a file, which is repeated."""

    @property
    @abstractmethod
    def trace(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Times (s) from 0 on, and bandwidths (bits per second). There is one more time than bandwidths.

        bandwidths[k] applies from times[k] to times[k + 1]. Raises UserError.
        """

    def pieces(self, seed: int, name: str) -> Iterator[Piece]:
        """Yield (end, bandwidth): up to virtual time `end`, an actor has this bandwidth. Raises UserError."""
        times_s, bps = self.trace
        return repeated_slowness(times_s, bps, self.offset_s(seed, name, times_s[-1]))

    def _source(self) -> InputFile:
        return InputFile("file of network.uplink or network.downlink", Path(self.file))


class ChangingBandwidthFromTable(ChangingBandwidth):
    """Bandwidth over time from a table, which is repeated.

    CSV or .parquet file with the columns `time_s`, from 0 on, and `mbit_per_s`, which applies from that time
    on; 0 is no connection. The last row ends the cycle; its bandwidth is ignored.
    """

    kind: Literal["table"]

    @cached_property
    def trace(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        source = self._source()
        times_s, mbps = read_cycle(source, "mbit_per_s", 0, _MBPS_MAX)
        if not any(mbps):
            raise source.refusal("has no row with mbit_per_s > 0 before the last one")
        return times_s, tuple([1e6 * each for each in mbps])


class ChangingBandwidthFromMahimahi(ChangingBandwidth):
    """Bandwidth from a trace of mahimahi, which is repeated.

    Each line of the file is a time in milliseconds at which one packet of 1,500 bytes can be delivered. The
    last line ends the cycle. The cycle is divided into periods of length `step`, each with the constant
    bandwidth that delivers exactly the packets of the file in this period.
    """

    kind: Literal["mahimahi"]
    step: PositiveDuration = default("100 ms")
    """Length of the periods of constant bandwidth; the last one of a cycle may be shorter."""

    @cached_property
    def trace(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        source = self._source()
        lines = source.text().split()
        if not lines or len(lines) > _PACKETS_MAX:
            raise source.refusal(f"has {len(lines):,} lines; must have from 1 to {_PACKETS_MAX:,}")
        times_ms = np.array([_milliseconds(source, number, line) for number, line in enumerate(lines, 1)])
        if (falls := np.flatnonzero(np.diff(times_ms) < 0)).size:
            raise source.refusal("must not be smaller than the previous line", f"line {falls[0] + 2}")
        end_ms = int(times_ms[-1])
        if end_ms == 0:
            raise source.refusal("ends at 0 ms; the last line must be larger than 0")
        step_ms = 1e3 * self.step
        if end_ms / step_ms > _STEPS_MAX:
            raise source.refusal(
                f"lasts {end_ms:,} ms, more than {_STEPS_MAX:,} steps of {step_ms:g} ms; use a larger step"
            )
        count = max(1, math.ceil(end_ms / step_ms - _ROUNDING))
        # A packet at the end of a step belongs to this step, so that the last packet has one.
        steps = np.clip(np.ceil(times_ms / step_ms - _ROUNDING).astype(np.int64) - 1, 0, count - 1)
        packets = np.bincount(steps, minlength=count)
        times_s = [number * self.step for number in range(count)] + [end_ms / 1e3]
        bits = (PACKET_BITS * packets).tolist()
        bps = [each / (end - start) for each, (start, end) in zip(bits, pairwise(times_s), strict=True)]
        return tuple(times_s), tuple(bps)


def _milliseconds(source: InputFile, number: int, line: str) -> int:
    if not (line.isascii() and line.isdecimal() and len(line) <= len(str(_MS_MAX))):
        most = f"at most {len(str(_MS_MAX))} digits"
        problem = f"{line[:20]!r} must be a whole number of milliseconds, with {most}"
        raise source.refusal(problem, f"line {number}")
    return int(line)
