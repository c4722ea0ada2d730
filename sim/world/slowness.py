"""Slow times of a device: known, random, recurring and measured, as one function of virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from math import inf, isfinite, prod

from sim.kernel.random import Draws

Piece = tuple[float, float]
"""(end, factor): up to virtual time `end` a nominal second takes `factor` seconds."""


def require_positive(**values: float) -> None:
    """ValueError, naming it, for a value that is not finite and above 0."""
    for name, value in values.items():
        if not (isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number above 0, not {value!r}")


@dataclass(frozen=True, slots=True)
class Slowdown:
    """From `start_s` until `end_s` (virtual seconds, or `inf`) every job takes `factor` times as long."""

    start_s: float
    end_s: float
    factor: float

    def __post_init__(self) -> None:
        if not 0 <= self.start_s < self.end_s:
            raise ValueError(
                f"a slowdown needs 0 <= start_s < end_s, not {self.start_s!r} and {self.end_s!r}"
            )
        require_positive(factor=self.factor)

    def pieces(self) -> Iterator[Piece]:
        """The pieces from time 0 on, without gaps, up to infinity."""
        if self.start_s:
            yield self.start_s, 1.0
        yield self.end_s, self.factor
        if self.end_s < inf:
            yield inf, 1.0


@dataclass(frozen=True, slots=True)
class TransientSlowdown:
    """Random stragglers, on and off as a Markov process: episodes in which all takes `factor` times as long.

    Quiet stretches are exponential of mean `every_s`, episodes of mean `length_s`.
    """

    every_s: float
    length_s: float
    factor: float

    def __post_init__(self) -> None:
        require_positive(every_s=self.every_s, length_s=self.length_s, factor=self.factor)

    def pieces(self, draws: Draws) -> Iterator[Piece]:
        """Quiet stretches and episodes in turn, without end."""
        end_s = 0.0
        while True:
            end_s += draws.exponential() * self.every_s
            yield end_s, 1.0
            end_s += draws.exponential() * self.length_s
            yield end_s, self.factor


@dataclass(frozen=True, slots=True)
class PeriodicSlowdown:
    """In the last `share` of each period all takes `factor` times as long; the first one begins at -phase_s.

    With a large factor these are hours in which a device hardly computes, such as a phone's by day.
    """

    period_s: float
    share: float
    factor: float
    phase_s: float = 0.0

    def __post_init__(self) -> None:
        require_positive(period_s=self.period_s, factor=self.factor)
        if not 0 < self.share < 1:
            raise ValueError(f"share must be above 0 and below 1, not {self.share!r}")
        if not 0 <= self.phase_s < self.period_s:
            raise ValueError(f"phase_s must be in the first period, not {self.phase_s!r}")

    def pieces(self) -> Iterator[Piece]:
        """Fast and slow parts of the periods, without end."""
        for number in count():
            begin_s = number * self.period_s - self.phase_s  # multiples rather than sums, which would drift
            for end_s, factor in (
                (begin_s + (1 - self.share) * self.period_s, 1.0),
                (begin_s + self.period_s, self.factor),
            ):
                if end_s > 0:
                    yield end_s, factor


@dataclass(frozen=True, slots=True)
class MeasuredSlowdown:
    """A trace: from times_s[k] to times_s[k + 1] all takes factors[k] times as long, and so on in a cycle.

    The first time is 0, the last one the length of the cycle; a run begins `offset_s` into it.
    """

    times_s: tuple[float, ...]
    factors: tuple[float, ...]
    offset_s: float = 0.0

    def __post_init__(self) -> None:
        if len(self.times_s) != len(self.factors) + 1 or self.times_s[0] != 0:
            raise ValueError("a trace of slowdowns needs times from 0 on, one more than factors")
        if not all(map(isfinite, self.times_s)) or any(b <= a for a, b in pairwise(self.times_s)):
            raise ValueError("the times of a trace of slowdowns must be finite and ascend")
        for factor in self.factors:
            require_positive(factor=factor)

    def pieces(self) -> Iterator[Piece]:
        """The cycle again and again, without end."""
        length_s = self.times_s[-1]
        for number in count():
            for end_s, factor in zip(self.times_s[1:], self.factors, strict=True):
                shifted_s = number * length_s + end_s - self.offset_s
                if shifted_s > 0:
                    yield shifted_s, factor


class Slowness:
    """How many real seconds a nominal second takes: a piecewise constant function of virtual time.

    At any time it is `factor` times the factors of all slow times in force. Random episodes are drawn from
    `draws` along virtual time, whatever the device does, so that two protocols meet the same stragglers.
    """

    def __init__(
        self,
        factor: float = 1.0,
        known: Sequence[Slowdown | PeriodicSlowdown | MeasuredSlowdown] = (),
        transient: TransientSlowdown | None = None,
        draws: Draws | None = None,
    ) -> None:
        require_positive(factor=factor)
        if transient is not None and draws is None:
            raise ValueError("transient slowdowns are random: they need draws")
        self.factor = factor
        self._steady = not known and transient is None
        sources = [slowdown.pieces() for slowdown in known]
        if transient is not None and draws is not None:
            sources.append(transient.pieces(draws))
        self._source = _product(factor, sources)
        self._ahead = deque([next(self._source)])  # pieces (end_s, factor) that the past has not used up

    def finish_s(self, start_s: float, work_s: float) -> float:
        """The virtual time at which `work_s` nominal seconds begun at `start_s` are done, integrated exactly.

        `start_s` must not go back from one call to the next: what lies before it is forgotten.
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
