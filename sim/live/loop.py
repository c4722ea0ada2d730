"""A virtual loop that waits for the wall clock, and for what other processes send."""

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
"""How late an event may be and still count from when it should have happened."""
BLOCKED_S = 0.1
"""An event that takes longer is noted: nothing else of its process happens meanwhile."""
_BLOCKED_MOST = 100
_ITERATIONS_MAX = 10_000  # in one instant, before time passes all the same


class LiveLoop(VirtualLoop):
    """Fires each event when the wall clock has come to its time, as soon as the process can.

    What is a little late still happens at the time that was meant, so that a host's lag is not the world's.
    Where the whole process stood still for more than `CAP_S`, it has lost that time: whatever its actors wait
    for is put off, and so nobody else is blamed for it. elapsed: seconds since the run began, the same in all
    processes. raw: events happen when they do happen, and not when they should have.
    """

    def __init__(self, elapsed: Callable[[], float], *, raw: bool = False) -> None:
        super().__init__()
        self.inbox: SimpleQueue[Callable[[], object]] = SimpleQueue()
        """What other threads have called in the loop; all else of it is for its own thread only."""
        self.ends_by_clock = False
        """Whether `stop` does nothing: clients of other processes still need those of this one."""
        self.late_jobs_s, self.job_lengths_s = array("d"), array("d")
        """Of each job that was done: how long after its end this was noticed, and how long it had taken."""
        self.late_messages_s = array("d")
        """Of each message that came from another process: how long after its time it was delivered."""
        self.stalls: list[tuple[float, float]] = []
        """When this process stood still, and for how long, in seconds."""
        self.blocked: list[tuple[float, float, str]] = []
        """When one event took long, for how many seconds, and whose it was."""
        self._forgiven_s = 0.0  # what was due before may come as late as it will
        self._elapsed = elapsed
        self._raw = raw

    @property
    def elapsed_s(self) -> float:
        """Seconds of the wall clock since the run began."""
        return self._elapsed()

    @override
    def stop(self) -> None:
        if not self.ends_by_clock:
            super().stop()

    @override
    def wake(self, signal: Signal) -> None:
        task, signal._task = signal._task, None
        assert task is not None
        self._ready.append(task)  # so that it is known whose event takes long

    @override
    def _run_events(self, end_s: float) -> None:
        iterations = 0  # in this instant
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
        """Do what other threads have asked for."""
        while True:
            try:
                action = self.inbox.get_nowait()
            except Empty:
                return
            action()

    def _wait(self, seconds: float) -> None:
        """Let time pass, until another thread has something to do here."""
        try:
            action = self.inbox.get(timeout=min(seconds, 3600.0))
        except Empty:
            return
        action()

    def _next_due_s(self) -> float:
        """When the next event is due; infinite if there is none."""
        timers = self._timers
        while timers and timers[0][2].due != timers[0][1]:
            heappop(timers)
            self._cancelled -= 1
        first_s = timers[0][0] if timers else math.inf
        return min(first_s, self._observers[0][0]) if self._observers else first_s

    def _fire_next(self, end_s: float) -> bool:
        """Fire the next event, which is due; False if none is until `end_s`."""
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
        """This process stood still: put off all that its actors wait for, but not what comes from others."""
        self._wait(0.02)  # what has come meanwhile is first
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
