"""Slowness of a device over virtual time: the product of all its slow times."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from math import inf, prod

from sim.kernel.random import RandomStream

Piece = tuple[float, float]
"""(end, factor): up to virtual time `end`, a nominal second takes `factor` seconds."""


def single_slow_time(start_s: float, end_s: float, factor: float) -> Iterator[Piece]:
    """Yield a slow time: jobs take `factor` times as long from `start_s` to `end_s` (`inf`: forever)."""
    if start_s:
        yield start_s, 1.0
    yield end_s, factor
    if end_s < inf:
        yield inf, 1.0


def random_slow_times(every_s: float, length_s: float, factor: float, draws: RandomStream) -> Iterator[Piece]:
    """Yield normal periods (mean `every_s`) and slow periods (mean `length_s`) in turn, all exponential."""
    end_s = 0.0
    while True:
        end_s += draws.exponential() * every_s
        yield end_s, 1.0
        end_s += draws.exponential() * length_s
        yield end_s, factor


def periodic_slowness(period_s: float, share: float, factor: float, phase_s: float = 0.0) -> Iterator[Piece]:
    """Yield periods that start at -phase_s: jobs take `factor` times as long in the last `share` of each."""
    for number in count():
        start_s = number * period_s - phase_s  # multiples rather than sums, which would drift
        for end_s, in_force in (
            (start_s + (1 - share) * period_s, 1.0),
            (start_s + period_s, factor),
        ):
            if end_s > 0:
                yield end_s, in_force


def repeated_slowness(
    times_s: Sequence[float], factors: Sequence[float], offset_s: float = 0.0
) -> Iterator[Piece]:
    """Yield the pieces of a repeated trace. The run starts `offset_s` into it."""
    for number in count():
        for end_s, factor in zip(times_s[1:], factors, strict=True):
            shifted_s = number * times_s[-1] + end_s - offset_s
            if shifted_s > 0:
                yield shifted_s, factor


class Slowness:
    """Seconds that a nominal second takes: a piecewise constant function of virtual time.

    It is the product of `factor` and of the factors of all `sources` at that time. Sources do not depend on
    the use of the device, so two protocols get the same slow devices.
    """

    __slots__ = ("_ahead", "_source", "factor")

    def __init__(self, factor: float = 1.0, *sources: Iterator[Piece]) -> None:
        self.factor = factor
        self._source = _product_of_pieces(factor, sources) if sources else None
        if self._source is not None:
            self._ahead = deque([next(self._source)])  # pieces (end_s, factor) that have not ended

    def finish_s(self, start_s: float, work_s: float) -> float:
        """Return the exact end, in virtual time, of `work_s` nominal seconds of work that start at `start_s`.

        `start_s` must not decrease from call to call, since earlier pieces are dropped.
        """
        source = self._source
        if source is None:
            return start_s + work_s * self.factor
        ahead = self._ahead
        while ahead[0][0] <= start_s:
            ahead.popleft()
            if not ahead:
                ahead.append(next(source))
        at_s, index = start_s, 0
        while True:
            if index == len(ahead):
                ahead.append(next(source))
            end_s, factor = ahead[index]
            piece_s = (end_s - at_s) / factor
            if work_s <= piece_s:
                return at_s + work_s * factor
            work_s -= piece_s
            at_s = end_s
            index += 1


def _product_of_pieces(factor: float, sources: Sequence[Iterator[Piece]]) -> Iterator[Piece]:
    """Yield the constant pieces of the product of all sources, from time 0 on."""
    heads = [next(source) for source in sources]
    while True:
        end_s = min([end_s for end_s, _ in heads], default=inf)
        yield end_s, factor * prod([in_force for _, in_force in heads])
        if end_s == inf:
            return
        heads = [
            next(source) if head[0] == end_s else head for source, head in zip(sources, heads, strict=True)
        ]
