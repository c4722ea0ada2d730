"""Virtual loop that waits for wall-clock time to pass, and for messages of other processes."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from heapq import heapify, heappop
from queue import Empty, SimpleQueue

from typing_extensions import override

from sim.kernel.clock import VirtualLoop
from sim.kernel.task import Signal, VirtualTask
from sim.kernel.timers import NEVER, Timer
from sim.world.connection import Message
from sim.world.devices.device import Job

CAP_S = 0.5
"""Maximum delay of an event that still counts at its planned time."""
BLOCKED_S = 0.1
"""Duration from which an event is recorded, as it blocks its process."""
_BLOCKED_MOST = 100
_ITERATIONS_MAX = 10_000  # at one time, after which the time is advanced


class LiveLoop(VirtualLoop):
    """Loop that fires each event when the wall clock reaches its time, as soon as the process can.

    Slightly late events still count at their planned times, so that lag of the machine does not change the
    simulated world. After a pause of the process of more than `CAP_S`, all events except messages are
    postponed, so that no other actor is blamed for the pause. elapsed: returns the seconds since the start of
    the run, equal in all processes. raw: events count at their actual times.
    """

    def __init__(self, elapsed: Callable[[], float], *, raw: bool = False) -> None:
        super().__init__()
        self.inbox: SimpleQueue[Callable[[], object]] = SimpleQueue()
        """Calls from other threads; the other attributes are only for the loop's thread."""
        self.ends_by_clock = False
        """True if `stop` has no effect, because clients of other processes still need this process."""
        self.late_jobs_s, self.job_lengths_s = array("d"), array("d")
        """Delay of the end of each finished job, and its duration, in seconds."""
        self.late_messages_s = array("d")
        """Delay of the delivery of each message from another process, in seconds."""
        self.stalls: list[tuple[float, float]] = []
        """Times and lengths of pauses of this process, in seconds."""
        self.blocked: list[tuple[float, float, str]] = []
        """Times, durations (seconds) and owners of long events."""
        self._forgiven_s = 0.0  # events that were due before may have any delay
        self._elapsed = elapsed
        self._raw = raw

    @property
    def elapsed_s(self) -> float:
        """Wall-clock seconds since the start of the run."""
        return self._elapsed()

    @override
    def stop(self) -> None:
        if not self.ends_by_clock:
            super().stop()

    @override
    def wake(self, signal: Signal) -> None:
        task, signal._task = signal._task, None
        assert task is not None
        self._ready.append(task)  # to know the owner of a long event

    @override
    def _run_events(self, end_s: float) -> None:
        iterations = 0  # at the current time
        while not self._stopping and self._failure is None:
            try:
                self._take_in()
                if self._ready:
                    iterations += 1
                    if iterations > _ITERATIONS_MAX:
                        iterations, self.now_s = 0, max(self.now_s, self._elapsed())
                    for _ in range(len(self._ready)):
                        self._fire(self._ready.popleft())
                    continue
                iterations = 0
                due_s = min(self._next_due_s(), end_s)
                wait_s = due_s - self._elapsed()
                if wait_s > 0:
                    self._wait(wait_s)
                elif -wait_s > CAP_S and due_s > self._forgiven_s:
                    self._lose(due_s)
                elif not self._fire_next(end_s):
                    return
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": "error in a callback", "exception": error})

    def _fire(self, timer: Timer) -> None:
        before_s = self._elapsed()
        timer.fire()
        took_s = self._elapsed() - before_s
        if took_s > BLOCKED_S and len(self.blocked) < _BLOCKED_MOST:
            what = timer.get_name() if isinstance(timer, VirtualTask) else repr(timer)
            self.blocked.append((self.now_s, took_s, what))

    def _take_in(self) -> None:
        """Execute the calls of other threads."""
        while True:
            try:
                action = self.inbox.get_nowait()
            except Empty:
                return
            action()

    def _wait(self, seconds: float) -> None:
        """Wait for a time, or until another thread adds a call, and execute it."""
        try:
            action = self.inbox.get(timeout=min(seconds, 3600.0))
        except Empty:
            return
        action()

    def _next_due_s(self) -> float:
        """Return the time of the next event; infinite if there is none."""
        timers = self._timers
        while timers and timers[0][2].due != timers[0][1]:
            heappop(timers)
            self._cancelled -= 1
        first_s = timers[0][0] if timers else math.inf
        return min(first_s, self._observers[0][0]) if self._observers else first_s

    def _fire_next(self, end_s: float) -> bool:
        """Fire the next event, which is due. Returns False if there is none until `end_s`."""
        timers, observers = self._timers, self._observers
        if timers and timers[0][0] <= end_s and not (observers and observers[0][0] < timers[0][0]):
            when_s, _, timer = heappop(timers)
            self._go_to(when_s)
            timer.due = NEVER
            self._note(timer, self._elapsed() - when_s)
            self._ready.append(timer)
        elif observers and observers[0][0] <= end_s:
            when_s, _, event = heappop(observers)
            if not event.cancelled():
                self._go_to(when_s)
                self._ready.append(event)
        else:
            return False
        return True

    def _go_to(self, when_s: float) -> None:
        self.now_s = max(self.now_s, self._elapsed() if self._raw else when_s)

    def _note(self, timer: Timer, late_s: float) -> None:
        if type(timer) is Job:
            self.late_jobs_s.append(late_s)
            self.job_lengths_s.append(timer.seconds_nominal)
        elif type(timer) is Message and timer.pair_index < 0:
            self.late_messages_s.append(late_s)

    def _lose(self, due_s: float) -> None:
        """After a pause of this process, postpone all events except messages."""
        self._wait(0.02)  # first handle calls that arrived meanwhile
        self._forgiven_s = self._elapsed()
        lost_s = self._forgiven_s - due_s
        self.stalls.append((due_s, lost_s))
        put_off = [
            (when_s if type(timer) is Message else when_s + lost_s, number, timer)
            for when_s, number, timer in self._timers
            if timer.due == number
        ]
        self._timers[:], self._cancelled = put_off, 0
        heapify(self._timers)
