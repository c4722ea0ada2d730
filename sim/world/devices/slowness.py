"""Slow times of a device: scheduled, random, periodic and measured, as one function of virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from math import inf, isfinite, prod
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings, at_most_one, exactly_one
from actors.settings.quantities import ClientList, Duration, Factor, PositiveDuration, Probability
from sim.files.input_file import InputFile
from sim.kernel.random import RandomStream

Piece = tuple[float, float]
"""(end, factor): up to virtual time `end` a nominal second takes `factor` seconds."""
Trace = tuple[tuple[float, ...], tuple[float, ...]]
"""Times in seconds from 0 on, one more than factors: factors[k] holds from times[k] to times[k + 1]."""

_CENTURY_S = 36_500 * 86_400.0  # about as long as a run may be
_FACTOR_MIN, _FACTOR_MAX = 1e-6, 1e6  # a second that takes between a microsecond and 12 days


def require_positive(**values: float) -> None:
    """ValueError, with the name, for a value that is not finite and above 0."""
    for name, value in values.items():
        if not (isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number above 0, not {value!r}")


class ScheduledSlowdown(Settings):
    """Some clients' devices are slower for a time."""

    clients: ClientList | None = None
    """The clients."""
    share: Probability | None = None
    """Probability that a client's is, instead of `clients`; each client draws for itself."""
    factor: Factor
    """Factor on their computing times."""
    start: Duration
    """Begin."""
    end: PositiveDuration
    """End."""

    @model_validator(mode="after")
    def _consistent(self) -> ScheduledSlowdown:
        exactly_one(self, "clients", "share")
        if self.end <= self.start:
            raise SettingError("end", self.end, f"must be after start ({self.start:g} s)")
        return self

    def pieces(self) -> Iterator[Piece]:
        """The pieces of the slow time."""
        return once(self.start, self.end, self.factor)


class TransientStragglers(Settings):
    """Slow periods that each client has at random, independently of the others."""

    clients: ClientList | None = None
    """The clients that have them. By default all."""
    share: Probability | None = None
    """Probability that a client has them, instead of `clients`; each client draws for itself."""
    every: PositiveDuration
    """Mean time between two slow periods of a client (exponential)."""
    length: PositiveDuration
    """Mean length of a slow period (exponential)."""
    factor: Factor
    """Factor on the computing times during a slow period."""

    @model_validator(mode="after")
    def _one_way(self) -> TransientStragglers:
        at_most_one(self, "clients", "share")
        return self

    def pieces(self, seed: int, client: int) -> Iterator[Piece]:
        """The pieces of a client's slow periods."""
        return spells(self.every, self.length, self.factor, RandomStream(seed, "transient slowdown", client))


class PeriodicSlowTimes(Settings):
    """Devices are slow for a part of each period: phones that train well only while charging."""

    clients: ClientList | None = None
    """The clients whose devices are; by default all."""
    share_of_clients: Probability | None = None
    """Probability that a client's is, instead of `clients`; each client draws for itself."""
    period: PositiveDuration
    """Length of a period."""
    share: Annotated[float, Field(gt=0, lt=1)]
    """Share of the period that is slow: its last part."""
    factor: Factor
    """Factor on the computing times during it."""
    phase: Literal["random"] | Duration = "random"
    """How far into a period the run begins: drawn for each client, or the same for all."""

    @model_validator(mode="after")
    def _consistent(self) -> PeriodicSlowTimes:
        at_most_one(self, "clients", "share_of_clients")
        if self.phase != "random" and self.phase >= self.period:
            problem = f"must be less than the period ({self.period:g} s)"
            raise SettingError("phase", self.phase, problem)
        return self

    def pieces(self, seed: int, client: int) -> Iterator[Piece]:
        """The pieces of a client's slow times."""
        phase_s = self.phase
        if phase_s == "random":
            phase_s = self.period * RandomStream(seed, "phase of slow times", client).uniform()
        return periods(self.period, self.share, self.factor, phase_s)


class MeasuredSlowTimes(Settings):
    """Devices are slowed down by a trace, which is repeated."""

    clients: ClientList | None = None
    """The clients whose devices are; by default all."""
    share: Probability | None = None
    """Probability that a client's is, instead of `clients`; each client draws for itself."""
    file: Annotated[str, Field(min_length=1)]
    """CSV file with the columns time_s, from 0 on, and factor, which holds from that time on. The last row
    ends the cycle; its factor does not count. The path is relative to the current folder or else to the
    scenario's."""
    offset: Literal["random"] | Duration = "random"
    """How far into the trace the run begins: drawn for each client, or the same for all."""

    @model_validator(mode="after")
    def _one_way(self) -> MeasuredSlowTimes:
        at_most_one(self, "clients", "share")
        return self

    def pieces(self, trace: Trace, seed: int, client: int) -> Iterator[Piece]:
        """The pieces of the trace for one client."""
        length_s = trace[0][-1]
        offset_s = self.offset
        if offset_s == "random":
            offset_s = length_s * RandomStream(seed, "offset of slow times", client).uniform()
        return cycles(*trace, offset_s % length_s)


def slow_times(file: str) -> Trace:
    """Times, ascending from 0, and factors of `devices.measured.file`; one time more than factors."""
    source = InputFile("devices.measured.file", Path(file))
    rows = source.table("time_s", "factor")
    if len(rows) < 2:
        raise source.refusal("has one row; needs two at least, the last of which ends the cycle")
    times_s = [row.number("time_s", 0, _CENTURY_S) for row in rows]
    if times_s[0] != 0:
        raise rows[0].refusal(f"time_s = {times_s[0]:g}: must be 0, the begin of the cycle")
    for row, (before_s, time_s) in zip(rows[1:], pairwise(times_s), strict=True):
        if time_s <= before_s:
            raise row.refusal(f"time_s = {time_s:g}: must be more than that of the row before, {before_s:g}")
    # The last row only ends the cycle.
    factors = [row.number("factor", _FACTOR_MIN, _FACTOR_MAX) for row in rows[:-1]]
    return tuple(times_s), tuple(factors)


# --- slow times along virtual time, up to infinity ----------------------------------------------------------


def once(start_s: float, end_s: float, factor: float) -> Iterator[Piece]:
    """Jobs take `factor` times as long from `start_s` to `end_s` (`inf`: for ever)."""
    if start_s:
        yield start_s, 1.0
    yield end_s, factor
    if end_s < inf:
        yield inf, 1.0


def spells(every_s: float, length_s: float, factor: float, draws: RandomStream) -> Iterator[Piece]:
    """Normal periods (mean length `every_s`) and slow ones (mean `length_s`) in turn, all exponential."""
    end_s = 0.0
    while True:
        end_s += draws.exponential() * every_s
        yield end_s, 1.0
        end_s += draws.exponential() * length_s
        yield end_s, factor


def periods(period_s: float, share: float, factor: float, phase_s: float = 0.0) -> Iterator[Piece]:
    """Jobs take `factor` times as long in the last `share` of each period. The first begins at -phase_s."""
    for number in count():
        begin_s = number * period_s - phase_s  # multiples rather than sums, which would drift
        for end_s, in_force in (
            (begin_s + (1 - share) * period_s, 1.0),
            (begin_s + period_s, factor),
        ):
            if end_s > 0:
                yield end_s, in_force


def cycles(times_s: Sequence[float], factors: Sequence[float], offset_s: float = 0.0) -> Iterator[Piece]:
    """A trace, repeated. The run begins `offset_s` into it."""
    for number in count():
        for end_s, factor in zip(times_s[1:], factors, strict=True):
            shifted_s = number * times_s[-1] + end_s - offset_s
            if shifted_s > 0:
                yield shifted_s, factor


class Slowness:
    """How many seconds a nominal second takes: a piecewise constant function of virtual time.

    It is the product of `factor` and of the factors of all `sources` at that time. Sources do not depend on
    what the device does, so two protocols have the same slow devices.
    """

    __slots__ = ("_ahead", "_source", "_steady", "factor")

    def __init__(self, factor: float = 1.0, *sources: Iterator[Piece]) -> None:
        require_positive(factor=factor)
        self.factor = factor
        self._steady = not sources
        self._source = _product(factor, sources)
        self._ahead = deque([next(self._source)])  # pieces (end_s, factor) that are not over yet

    def finish_s(self, start_s: float, work_s: float) -> float:
        """The virtual time at which `work_s` nominal seconds that begin at `start_s` are done, exactly.

        `start_s` must not decrease from call to call: earlier pieces are dropped.
        """
        if self._steady:
            return start_s + work_s * self.factor
        ahead = self._ahead
        while ahead[0][0] <= start_s:
            ahead.popleft()
            if not ahead:
                ahead.append(next(self._source))
        at_s, index = start_s, 0
        while True:
            if index == len(ahead):
                ahead.append(next(self._source))
            end_s, factor = ahead[index]
            done_s = (end_s - at_s) / factor
            if work_s <= done_s:
                return at_s + work_s * factor
            work_s -= done_s
            at_s = end_s
            index += 1


def _product(factor: float, sources: Sequence[Iterator[Piece]]) -> Iterator[Piece]:
    """The constant pieces of the product of all sources, from time 0 on."""
    heads = [next(source) for source in sources]
    while True:
        end_s = min([end_s for end_s, _ in heads], default=inf)
        yield end_s, factor * prod([in_force for _, in_force in heads])
        if end_s == inf:
            return
        heads = [
            next(source) if head[0] == end_s else head for source, head in zip(sources, heads, strict=True)
        ]
