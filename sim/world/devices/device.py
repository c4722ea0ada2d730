"""Devices: what a computation costs in virtual time, and how a client's one serial device spends its time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from sim.errors import UserError
from sim.kernel.task import NEVER, Signal
from sim.world.devices.slowness import Slowness, require_positive
from sim.world.timeline import State, Timeline

if TYPE_CHECKING:
    from sim.kernel.clock import VirtualLoop

WAITING: Final = "waiting"
BUSY: Final = "busy"
DOWN: Final = "down"


class DeviceDown(RuntimeError):
    """Work was given to a device that is down."""


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
        require_positive(**given)

    def seconds(self, *, steps: float | None = None, flops: float | None = None) -> float:
        """Nominal seconds of a job of `steps` optimizer steps (fractions allowed) and `flops` FLOPs in all.

        Only the quantity that this device is measured by is needed; ValueError if that one is missing or not
        above 0.
        """
        needed, amount = ("steps", steps) if self.step_time_s is not None else ("flops", flops)
        if amount is None:
            raise ValueError(f"the duration of this job is unknown: {self!r} needs the job's {needed}")
        require_positive(**{needed: amount})
        if self.step_time_s is not None:
            return amount * self.step_time_s
        assert self.flops_per_s is not None  # one of the two is set
        return amount / self.flops_per_s


class Job(Signal):
    """Something that a device computes: done when its time is over, of which it is itself the timer.

    Cancelled, it leaves the device at once, and the next one begins.
    """

    __slots__ = ("device", "due", "seconds_nominal")

    def __init__(self, device: Device, seconds_nominal: float) -> None:
        # Signal.__init__, without a call: jobs are made in large numbers.
        self._task = self._reason = None
        self._done = False
        self.device = device
        self.seconds_nominal = seconds_nominal
        self.due = NEVER  # number of the timer, while it runs

    def fire(self) -> None:
        """Its time is over."""
        if not self._done:  # it is, when it was cancelled in this very instant
            self.set_result(None)
            self.device._next()

    def cancel(self, msg: Any = None) -> bool:
        """Whether it was still to be done."""
        if not super().cancel(msg):
            return False
        self.device._drop(self)
        return True


class Device:
    """A client's one serial device: jobs are done one after the other, first come, first served.

    It is up (`busy` with a job or `waiting` for one) or `down`, from its creation on.
    """

    __slots__ = (
        "_busy_s",
        "_down_s",
        "_loop",
        "_queue",
        "_running",
        "_since_s",
        "_slowness",
        "_state",
        "_timeline",
        "_waiting_s",
    )

    def __init__(
        self,
        loop: VirtualLoop,
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
        self._waiting_s = self._busy_s = self._down_s = 0.0  # until then
        self._running: Job | None = None
        self._queue: deque[Job] = deque()

    def __repr__(self) -> str:
        return f"<Device {self._state}, {len(self._queue)} queued>"

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self._loop.time()

    @property
    def slowdown(self) -> float:
        """How many times as long as nominally a job takes for good, passing slow times apart."""
        return self._slowness.factor

    def run(self, seconds_nominal: float) -> Job:
        """Do a job of so many nominal seconds, after all jobs given before.

        One task may await it, directly, for its end; if that is cancelled, so is the job.

        Raises DeviceDown if the device is down now; if it goes down later, whoever waits is cancelled.
        ValueError for a duration below 0 or not finite.
        """
        if not 0.0 <= seconds_nominal < inf:
            raise ValueError(
                f"a job's nominal seconds must be finite and at least 0, not {seconds_nominal!r}"
            )
        if self._state == DOWN:
            raise DeviceDown(f"a job of {seconds_nominal} s was given to a device that is down")
        job = Job(self, seconds_nominal)
        if self._running is None:
            self._begin(job)
        else:
            self._queue.append(job)
        return job

    def set_up(self) -> None:
        """The client is back, with an idle device; nothing happens if it is up."""
        if self._state == DOWN:
            self._enter(WAITING)

    def set_down(self) -> None:
        """The client is gone: all its jobs are cancelled; nothing happens if it is down."""
        if self._state == DOWN:
            return
        running, queue = self._running, self._queue
        self._running, self._queue = None, deque()
        if running is not None:
            self._loop.withdraw(running)
        self._enter(DOWN)
        for job in [*queue] if running is None else [running, *queue]:
            job.cancel()

    @property
    def state(self) -> State:
        """What the device is doing now: waiting, busy or down."""
        return self._state

    @property
    def busy_s(self) -> float:
        """Seconds spent on jobs until now, also on those that were cancelled."""
        return self._busy_s + self._present_s(BUSY)

    @property
    def waiting_s(self) -> float:
        """Seconds that the device was up with nothing to do, until now."""
        return self._waiting_s + self._present_s(WAITING)

    @property
    def up_s(self) -> float:
        """Seconds that the device was up, until now."""
        return self.busy_s + self.waiting_s

    @property
    def down_s(self) -> float:
        """Seconds that the device was down, until now."""
        return self._down_s + self._present_s(DOWN)

    def intervals(self) -> list[tuple[float, float, State]]:
        """The busy and down stretches until now as (start_s, end_s, state), in order; the rest is waiting."""
        now_s = self._loop.time()
        stretches = list(self._timeline)
        if self._state == WAITING or self._since_s == now_s:
            return stretches
        if stretches and stretches[-1][1:] == (self._since_s, self._state):
            return [*stretches[:-1], (stretches[-1][0], now_s, self._state)]
        return [*stretches, (self._since_s, now_s, self._state)]

    def _present_s(self, state: State) -> float:
        return self._loop.time() - self._since_s if state == self._state else 0.0

    def _enter(self, state: State) -> None:
        now_s, since_s, left = self._loop.now_s, self._since_s, self._state
        if left == WAITING:
            self._waiting_s += now_s - since_s
        elif left == BUSY:
            self._busy_s += now_s - since_s
            self._timeline.add(since_s, now_s, left)
        else:
            self._down_s += now_s - since_s
            self._timeline.add(since_s, now_s, left)
        self._state = state
        self._since_s = now_s

    def _begin(self, job: Job) -> None:
        self._enter(BUSY)
        self._running = job
        try:
            end_s = self._slowness.finish_s(self._since_s, job.seconds_nominal)
        except UserError as error:  # of the user's own slow times; the client that computes is not to blame
            self._loop.call_exception_handler({"message": "slow times cannot be known", "exception": error})
            return
        self._loop.schedule(end_s, job)

    def _drop(self, job: Job) -> None:
        """A job has been cancelled."""
        if job is self._running:
            self._loop.withdraw(job)
            self._next()
        elif job in self._queue:
            self._queue.remove(job)

    def _next(self) -> None:
        """The running job is done, or is not to be done; begin the next one."""
        if self._queue:
            self._begin(self._queue.popleft())
        else:
            self._running = None
            self._enter(WAITING)
