"""Devices: durations of computations in virtual time, and the use of a client's device over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from sim.errors import UserError
from sim.kernel.task import Signal
from sim.kernel.timers import NEVER
from sim.world.devices.slowness import Slowness
from sim.world.timeline import State, Timeline

if TYPE_CHECKING:
    from sim.kernel.clock import VirtualLoop

WAITING: Final = "waiting"
BUSY: Final = "busy"
DOWN: Final = "down"


class DeviceDown(RuntimeError):
    """Error: a job was submitted to a device that is down."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """Nominal seconds of a job: a fixed time per step, or the job's FLOPs over the device's speed.

    Exactly one of `step_time_s` (seconds) and `flops_per_s` (FLOP/s) is set. There is no default duration.
    """

    step_time_s: float | None = None
    flops_per_s: float | None = None

    def seconds(self, *, steps: float | None = None, flops: float | None = None) -> float:
        """Return the nominal seconds of a job: `steps` training steps (fractions allowed) and `flops` FLOPs.

        Only the quantity that this model uses is needed. Raises ValueError if it is missing, infinite, or not
        above 0.
        """
        amount = flops if self.step_time_s is None else steps
        if amount is None or not 0 < amount < inf:
            raise ValueError(f"the duration of a job of {steps} steps and {flops} FLOPs is unknown: {self!r}")
        if self.step_time_s is not None:
            return amount * self.step_time_s
        assert self.flops_per_s is not None  # one of the two is set
        return amount / self.flops_per_s


class Job(Signal):
    """Job on a device, and also the timer of its end.

    A canceled job leaves the device at once, and the next one starts.
    """

    __slots__ = ("device", "due", "seconds_nominal")

    def __init__(self, device: Device, seconds_nominal: float) -> None:
        # Same as Signal.__init__, without the call: jobs are created in large numbers.
        self._task = self._reason = None
        self._done = False
        self.device = device
        self.seconds_nominal = seconds_nominal
        self.due = NEVER  # number of the timer while the job runs

    def fire(self) -> None:
        """End the job."""
        if not self._done:  # it may have been canceled at this virtual time
            self._done = True
            self.device._next()
            if self._task is not None:
                self.device._loop.wake(self)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the job. Returns False if it had ended."""
        if not super().cancel(msg):
            return False
        self.device._drop(self)
        return True


class Device:
    """Serial device of a client. It runs one job at a time, in order of submission.

    Its state is `busy`, `waiting` for a job, or `down`.
    """

    __slots__ = (
        "_busy_s",
        "_created_s",
        "_down_s",
        "_loop",
        "_queue",
        "_running",
        "_since_s",
        "_slowness",
        "_timeline",
        "state",
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
        self.state: State = WAITING if up else DOWN
        """Current state."""
        self._created_s = self._since_s = loop.time()  # creation, and start of the present state
        self._busy_s = self._down_s = 0.0  # before `_since_s`
        self._running: Job | None = None
        self._queue: list[Job] = []  # most are empty; an empty deque takes ten times the memory

    def __repr__(self) -> str:
        return f"<Device {self}>"

    def __str__(self) -> str:
        jobs = "1 job" if len(self._queue) == 1 else f"{len(self._queue)} jobs"
        return f"{self.state} since {self._since_s:g} s, {jobs} queued"

    @property
    def now_s(self) -> float:
        """Virtual time in seconds."""
        return self._loop.time()

    @property
    def loop(self) -> VirtualLoop:
        """Event loop that provides the virtual time."""
        return self._loop

    @property
    def slowdown(self) -> float:
        """Permanent factor on the duration of jobs, without temporary slow times."""
        return self._slowness.factor

    def run(self, seconds_nominal: float) -> Job:
        """Submit a job of `seconds_nominal` nominal seconds. It starts after all earlier jobs.

        One task may await the end of the job. If that task is canceled, the job is canceled, too. If the
        device goes down, the task is canceled. Raises DeviceDown if the device is down now, and ValueError
        for a duration that is negative or not finite.
        """
        if not 0.0 <= seconds_nominal < inf:
            raise ValueError(
                f"a job's nominal seconds must be finite and at least 0, not {seconds_nominal!r}"
            )
        if self.state == DOWN:
            raise DeviceDown(f"a job of {seconds_nominal} s was submitted to a device that is down")
        job = Job(self, seconds_nominal)
        if self._running is None:
            self._start(job)
        else:
            self._queue.append(job)
        return job

    def set_up(self) -> None:
        """Start the device, idle, when its client is up again. Does nothing if the device is up."""
        if self.state == DOWN:
            self._enter(WAITING)

    def set_down(self) -> None:
        """Stop the device when its client departs, and cancel all jobs. Does nothing if it is down."""
        if self.state == DOWN:
            return
        running, queue = self._running, self._queue
        self._running, self._queue = None, []
        if running is not None:
            self._loop.withdraw(running)
        self._enter(DOWN)
        for job in [*queue] if running is None else [running, *queue]:
            job.cancel()

    @property
    def busy_s(self) -> float:
        """Seconds of computing so far, including canceled jobs."""
        return self._busy_s + self._present_s(BUSY)

    @property
    def waiting_s(self) -> float:
        """Seconds that the device was up without a job so far."""
        return max(0.0, self.up_s - self.busy_s)

    @property
    def up_s(self) -> float:
        """Seconds that the device was up so far."""
        return self._loop.time() - self._created_s - self.down_s

    @property
    def down_s(self) -> float:
        """Seconds that the device was down so far."""
        return self._down_s + self._present_s(DOWN)

    def recall(
        self, busy_s: float, waiting_s: float, intervals: Iterable[tuple[float, float, State]]
    ) -> None:
        """Take over the history of an earlier device: its busy and waiting seconds, and its `intervals`.

        The rest of the time until now counts as down.
        """
        self._busy_s, self._since_s = busy_s, self._loop.time()
        self._down_s = max(0.0, self._since_s - self._created_s - busy_s - waiting_s)
        for interval in intervals:
            self._timeline.add(*interval)

    def intervals(self) -> list[tuple[float, float, State]]:
        """Return the busy and down intervals so far, in order: (start_s, end_s, state). Gaps are waiting."""
        now_s = self._loop.time()
        stretches = list(self._timeline)
        if self.state == WAITING or self._since_s == now_s:
            return stretches
        if stretches and stretches[-1][1:] == (self._since_s, self.state):
            return [*stretches[:-1], (stretches[-1][0], now_s, self.state)]
        return [*stretches, (self._since_s, now_s, self.state)]

    def _present_s(self, state: State) -> float:
        return self._loop.time() - self._since_s if state == self.state else 0.0

    def _enter(self, state: State) -> None:
        now_s, since_s, left = self._loop.now_s, self._since_s, self.state
        if left != WAITING:
            if left == BUSY:
                self._busy_s += now_s - since_s
            else:
                self._down_s += now_s - since_s
            self._timeline.add(since_s, now_s, left)
        self.state = state
        self._since_s = now_s

    def _start(self, job: Job) -> None:
        now_s = self._loop.now_s
        if self._running is None:
            self.state, self._since_s = BUSY, now_s
        self._running = job
        try:
            end_s = self._slowness.finish_s(now_s, job.seconds_nominal)
        except UserError as error:  # the user's slow times failed, not the client's code
            self._loop.call_exception_handler({"message": "slow times are unknown", "exception": error})
            return
        self._loop.schedule(end_s, job)

    def _drop(self, job: Job) -> None:
        """Remove a canceled job from the device."""
        if job is self._running:
            self._loop.withdraw(job)
            self._next()
        elif job in self._queue:
            self._queue.remove(job)

    def _next(self) -> None:
        """Start the next job after the end of the running one."""
        if self._queue:
            self._start(self._queue.pop(0))
        else:
            self._running = None
            self._enter(WAITING)
