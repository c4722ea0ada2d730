"""Devices: what a computation costs in virtual time, and how a client's one serial device spends its time."""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite, prod
from typing import Final, Literal

from sim.world.random import Draws

State = Literal["waiting", "busy", "down"]

WAITING: Final = "waiting"
BUSY: Final = "busy"
DOWN: Final = "down"


class DeviceDown(RuntimeError):
    """Work was given to a device that is down."""


def _require_positive(**values: float) -> None:
    for name, value in values.items():
        if not (isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number above 0, not {value!r}")


@dataclass(frozen=True, slots=True)
class CostModel:
    """The nominal seconds that a job takes: a fixed time per step, or its FLOPs over the device's speed.

    Exactly one of `step_time_s` (seconds) and `flops_per_s` (FLOP/s) is set. Both, neither, or a value that
    is not finite and above 0, is a ValueError: a device without a speed has no duration to offer, and 0 would
    be a lie.
    """

    step_time_s: float | None = None
    flops_per_s: float | None = None

    def __post_init__(self) -> None:
        given = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        if len(given) != 1:
            raise ValueError(
                f"a device needs exactly one of step_time_s and flops_per_s, not {len(given)} of them"
            )
        _require_positive(**given)

    def seconds(self, *, steps: float | None = None, flops: float | None = None) -> float:
        """Nominal seconds of a job of `steps` optimizer steps (fractions allowed) and `flops` FLOPs in all.

        Only the quantity that this device is measured by is needed; ValueError if that one is missing or not
        above 0.
        """
        needed, amount = ("steps", steps) if self.step_time_s is not None else ("flops", flops)
        if amount is None:
            raise ValueError(f"the duration of this job is unknown: {self!r} needs the job's {needed}")
        _require_positive(**{needed: amount})
        if self.step_time_s is not None:
            return amount * self.step_time_s
        assert self.flops_per_s is not None  # one of the two is set
        return amount / self.flops_per_s


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
        _require_positive(factor=self.factor)


@dataclass(frozen=True, slots=True)
class TransientSlowdown:
    """Random stragglers: episodes in which every job takes `factor` times as long.

    Episodes arrive as a Poisson process of rate 1 / `every_s` and last an exponential time of mean
    `length_s`; an arrival during an episode has no effect, so the quiet stretches between episodes are
    exponential of mean `every_s`.
    """

    every_s: float
    length_s: float
    factor: float

    def __post_init__(self) -> None:
        _require_positive(every_s=self.every_s, length_s=self.length_s, factor=self.factor)


class Slowness:
    """How many real seconds a nominal second takes: a piecewise constant function of virtual time.

    At any time it is `factor` times the factors of all `scheduled` slowdowns in force, times the factor of a
    running `transient` episode. Episodes are drawn from `draws` along virtual time, whatever the device does,
    so that two protocols meet the same stragglers.
    """

    def __init__(
        self,
        factor: float = 1.0,
        scheduled: Sequence[Slowdown] = (),
        transient: TransientSlowdown | None = None,
        draws: Draws | None = None,
    ) -> None:
        _require_positive(factor=factor)
        if transient is not None and draws is None:
            raise ValueError("transient slowdowns are random: they need draws")
        self.factor = factor
        self._scheduled = tuple(scheduled)
        self._transient = transient
        self._draws = draws
        self._steady = not scheduled and transient is None
        self._source = self._pieces()
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

    def _pieces(self) -> Iterator[tuple[float, float]]:
        """The constant pieces (end_s, factor) from time 0 on, without gaps, up to infinity."""
        edges_s = sorted({edge for slow in self._scheduled for edge in (slow.start_s, slow.end_s)} | {inf})
        episodes = self._episodes()
        episode_end_s, episode_factor = next(episodes)
        start_s = 0.0
        for edge_s in edges_s:
            while start_s < edge_s:
                end_s = min(edge_s, episode_end_s)
                in_force = (slow.factor for slow in self._scheduled if slow.start_s <= start_s < slow.end_s)
                yield end_s, self.factor * prod(in_force) * episode_factor
                start_s = end_s
                if end_s == episode_end_s < inf:
                    episode_end_s, episode_factor = next(episodes)

    def _episodes(self) -> Iterator[tuple[float, float]]:
        """Quiet stretches and episodes in turn, as (end_s, factor)."""
        if self._transient is None or self._draws is None:
            yield inf, 1.0
            return
        end_s = 0.0
        while True:
            end_s += self._draws.exponential() * self._transient.every_s
            yield end_s, 1.0
            end_s += self._draws.exponential() * self._transient.length_s
            yield end_s, self._transient.factor


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
        if self._states and self._states[-1] == state and start_s - self._ends_s[-1] <= self.resolution_s:
            self._ends_s[-1] = end_s
            return
        self._starts_s.append(start_s)
        self._ends_s.append(end_s)
        self._states.append(state)
        if len(self._states) > self._compact_at:
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


class Device:
    """A client's one serial device: jobs are done one after the other, first come, first served.

    It is up (`busy` with a job or `waiting` for one) or `down`, from its creation on. It needs nothing but
    asyncio and takes the loop's time for the time, so it works in virtual time and on a wall clock alike.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        slowness: Slowness | None = None,
        *,
        up: bool = True,
        timeline: Timeline | None = None,
    ) -> None:
        self._loop = loop
        self._slowness = slowness if slowness is not None else Slowness()
        self._timeline = timeline if timeline is not None else Timeline()
        self._state: State = WAITING if up else DOWN
        self._since_s = loop.time()  # when the present state began
        self._seconds: dict[State, float] = {WAITING: 0.0, BUSY: 0.0, DOWN: 0.0}
        self._running: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None  # ends the running job; spent when none runs
        self._queue: deque[tuple[asyncio.Future[None], float]] = deque()

    def __repr__(self) -> str:
        queued = sum(not future.done() for future, _ in self._queue)
        return f"<Device {self._state}, {queued} queued>"

    async def run(self, seconds_nominal: float) -> None:
        """Do a job of so many nominal seconds, after all jobs given before; return when it is done.

        A cancelled job leaves the device at once, and the next one begins. Raises DeviceDown if the device is
        down now; if it goes down later, whoever waits here is cancelled. ValueError for a duration below 0 or
        not finite.
        """
        if not 0.0 <= seconds_nominal < inf:
            raise ValueError(
                f"a job's nominal seconds must be finite and at least 0, not {seconds_nominal!r}"
            )
        if self._state == DOWN:
            raise DeviceDown(f"a job of {seconds_nominal} s was given to a device that is down")
        future: asyncio.Future[None] = self._loop.create_future()
        if self._running is None:
            self._begin(future, seconds_nominal)
        else:
            self._queue.append((future, seconds_nominal))
        try:
            await future
        except BaseException:
            future.cancel()  # so that a queued job is passed over when its turn comes
            if future is self._running:
                self._stop_timer()
                self._next()
            raise

    def set_up(self) -> None:
        """The client is back, with an idle device; nothing happens if it is up."""
        if self._state == DOWN:
            self._enter(WAITING)

    def set_down(self) -> None:
        """The client is gone: all its jobs are cancelled; nothing happens if it is down."""
        if self._state == DOWN:
            return
        if self._running is not None:
            self._running.cancel()
            self._stop_timer()
        for future, _ in self._queue:
            future.cancel()
        self._queue.clear()
        self._running = None
        self._enter(DOWN)

    @property
    def state(self) -> State:
        """What the device is doing now: waiting, busy or down."""
        return self._state

    @property
    def busy_s(self) -> float:
        """Seconds spent on jobs until now, also on those that were cancelled."""
        return self._seconds_until_now(BUSY)

    @property
    def waiting_s(self) -> float:
        """Seconds that the device was up with nothing to do, until now."""
        return self._seconds_until_now(WAITING)

    @property
    def down_s(self) -> float:
        """Seconds that the device was down, until now."""
        return self._seconds_until_now(DOWN)

    @property
    def timeline_resolution_s(self) -> float:
        """Pauses up to so many seconds may be missing in `intervals()`; 0 while it is exact."""
        return self._timeline.resolution_s

    def intervals(self) -> list[tuple[float, float, State]]:
        """The busy and down stretches until now as (start_s, end_s, state), in order; the rest is waiting."""
        now_s = self._loop.time()
        stretches = list(self._timeline)
        if self._state == WAITING or self._since_s == now_s:
            return stretches
        if stretches and stretches[-1][1:] == (self._since_s, self._state):
            return [*stretches[:-1], (stretches[-1][0], now_s, self._state)]
        return [*stretches, (self._since_s, now_s, self._state)]

    def _seconds_until_now(self, state: State) -> float:
        present_s = self._loop.time() - self._since_s if state == self._state else 0.0
        return self._seconds[state] + present_s

    def _enter(self, state: State) -> None:
        now_s = self._loop.time()
        left = self._state
        self._seconds[left] += now_s - self._since_s
        if left != WAITING:
            self._timeline.add(self._since_s, now_s, left)
        self._state = state
        self._since_s = now_s

    def _begin(self, future: asyncio.Future[None], seconds_nominal: float) -> None:
        self._enter(BUSY)
        self._running = future
        self._timer = self._loop.call_at(
            self._slowness.finish_s(self._since_s, seconds_nominal), self._complete, future
        )

    def _complete(self, future: asyncio.Future[None]) -> None:
        if not future.done():  # it is, when it was cancelled in this instant and its task is not told yet
            future.set_result(None)
        self._next()

    def _stop_timer(self) -> None:
        assert self._timer is not None  # a job is running
        self._timer.cancel()

    def _next(self) -> None:
        """Put the running job aside, done or not, and begin the next one that somebody still waits for."""
        self._running = None
        while self._queue:
            future, seconds_nominal = self._queue.popleft()
            if not future.done():
                self._begin(future, seconds_nominal)
                return
        self._enter(WAITING)
