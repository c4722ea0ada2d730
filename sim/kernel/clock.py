"""Virtual time: an asyncio event loop that owns its clock.

If nothing is ready, the loop jumps to the next timer, so an hour of sleeping takes no wall-clock time.
`asyncio.sleep`, `timeout`, `TaskGroup`, queues and all other code based on timers and futures work unchanged.
The order of events is a function of the program alone:

- Timers fire in the order of (time, sequence number).
- Ready callbacks run first in, first out, in iterations of the loop as in asyncio. Callbacks that become
  ready in one iteration run in the next, after the timers that are due.
- An *observer* timer fires after every other event of its time.
- Nothing reads the wall clock. Threads, sockets and signals are refused: they have no virtual time.

A program that waits for an event that can no longer happen ends with `Deadlock`, which lists the waiting
tasks. An unhandled exception ends the run. asyncio would print it and continue, but a run without one of its
actors gives wrong results.
"""

import asyncio
import math
import sys
import threading
from asyncio import current_task
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, TypeVar, TypeVarTuple, cast

from sim.kernel.deadlock import Deadlock, waiting_place
from sim.kernel.event import Event
from sim.kernel.livelock import ITERATIONS_MAX, LivelockGuard
from sim.kernel.random import shuffled_number, shuffled_numbers
from sim.kernel.task import Signal, VirtualTask
from sim.kernel.timers import NEVER, Timer, TimerLoop

__all__ = ["Deadlock", "VirtualLoop"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_PURGE_MIN = 64  # fewer canceled timers are not worth a pass over the heap


class VirtualLoop(TimerLoop):
    """An asyncio event loop on virtual time, in seconds from 0.

    Timers of exactly the same time fire in the order of their creation, or, with `shuffle_seed`, in a random
    order. Results that change with this seed depend on an order of simultaneous events, which no real network
    would guarantee.
    """

    def __init__(self, shuffle_seed: int | None = None) -> None:
        super().__init__()
        self.context = copy_context()  # of callbacks that state no context
        self.now_s = 0.0  # same as `time()`, without the call; read-only for others
        order = count() if shuffle_seed is None else shuffled_numbers(shuffle_seed)
        self._next_number: Callable[[], int] = order.__next__
        self._shuffle_seed = shuffle_seed
        self._ready: deque[Timer] = deque()
        # Two heaps of (time, number, timer). Numbers are unique, so timers are never compared.
        self._timers: list[tuple[float, int, Timer]] = []
        self._observers: list[tuple[float, int, Event]] = []
        self._cancelled = 0  # canceled timers that are still in the heap
        self._observer_order = count()
        # Unfinished tasks, in the order of their creation. asyncio holds tasks only weakly, so its garbage
        # collector may end a waiting task without other references, at a time that the program doesn't
        # decide.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._must_finish: dict[asyncio.Task[Any], Callable[[], str]] = {}
        self._awaited: asyncio.Future[Any] | None = None  # the future of `run_until_complete`
        self._stopping = False
        self.paused = False  # True if the last run ended by `pause`
        self._thread: int | None = None  # the thread that runs the loop, while it runs

    # Time and events

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self.now_s

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call `callback(*args)` in the next iteration, at this time, after all ready callbacks."""
        if self._closed:
            self._refuse_closed()
        if type(callback) is VirtualTask:  # its future is done: queue the task
            self._ready.append(callback)
            return callback  # futures do without the handle
        event = Event(self.now_s, callback, args, self, context)
        self._ready.append(event)
        return event

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call `call_soon`, for code written for any loop. Raises NotImplementedError in another thread."""
        if self._thread not in (None, threading.get_ident()):
            raise NotImplementedError(
                "a virtual loop accepts no calls from other threads, because the calls have no virtual time"
            )
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call `callback(*args)` in `delay` seconds; a negative delay counts as 0."""
        return self._schedule(self.now_s + delay, callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call `callback(*args)` at the time `when` (s). A past time counts as now, infinity as never."""
        return self._schedule(when, callback, args, context)

    def call_at_named(
        self, when: float, name: object, callback: Callable[[*Ts], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """Call `call_at` with a name. Under `shuffle_seed`, the name alone decides the position among
        simultaneous events, so that this event does not change the order of others. Names must be unique."""
        seed = self._shuffle_seed
        number = None if seed is None else shuffled_number(seed, str(name))
        return self._schedule(when, callback, args, number=number)

    def _schedule(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None = None,
        number: int | None = None,
    ) -> Event:
        if self._closed:
            self._refuse_closed()
        if not when >= self.now_s:
            when = self._not_before_now(when)
        event = Event(when, callback, args, self, context)
        event.due = number = self._next_number() if number is None else number
        heappush(self._timers, (when, number, event))
        return event

    def schedule(self, when: float, timer: Timer) -> None:
        """Call `timer.fire()` at the time `when` (seconds), without a context.

        It is cheaper than `call_at`, as it creates no handle: messages and jobs are timers themselves.
        """
        if not when >= self.now_s:
            when = self._not_before_now(when)
        next_number = self._next_number  # faster than an attribute call
        timer.due = number = next_number()
        heappush(self._timers, (when, number, timer))

    def withdraw(self, timer: Timer) -> None:
        """Cancel a timer that `schedule` has scheduled. Does nothing if the timer is not waiting."""
        if timer.due != NEVER:
            timer.due = NEVER
            self._timer_cancelled()

    def call_at_observer(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """Call `callback(*args)` at the time `when` (seconds), after every other event of that time.

        Observers watch a run without being part of it. They fire in the order of (time, sequence number),
        also under `shuffle_seed`. They do not count as remaining events: if only observers remain, waiting
        tasks are deadlocked.
        """
        if self._closed:
            self._refuse_closed()
        event = Event(self._not_before_now(when), callback, args, self, None)
        heappush(self._observers, (event.when(), next(self._observer_order), event))
        self._interrupted = True  # it may be the next to fire
        return event

    def wake(self, signal: Signal) -> None:
        """Resume the task that awaits `signal`, after the events that come before it.

        Call it last in a callback, whose remainder would otherwise run after the task.
        """
        task, signal._task = signal._task, None  # a reference to the signal must not keep the task alive
        assert task is not None
        timers, ready = self._timers, self._ready
        if ready or self._interrupted or (timers and timers[0][0] <= self.now_s) or current_task(self):
            ready.append(task)
            return
        try:
            task.fire()
        finally:
            del task  # an error of the task keeps this frame alive, which must not keep the task

    def _not_before_now(self, when: float) -> float:
        if math.isnan(when):
            raise ValueError("the time of a timer is not a number (nan)")
        return max(when, self.now_s)

    def _timer_cancelled(self) -> None:
        """Count a canceled timer. Canceled timers are removed once they are most of the heap."""
        self._cancelled += 1
        if self._cancelled > _PURGE_MIN and 2 * self._cancelled > len(self._timers):
            self._timers[:] = [entry for entry in self._timers if entry[2].due == entry[1]]
            heapify(self._timers)
            self._cancelled = 0

    # Running

    def run_until(self, time_s: float) -> bool:
        """Run every event up to and including `time_s` (seconds), and set the clock to that time.

        False if `stop` or `pause` ended the run earlier; the clock is then at the last event. If no event is
        left, `Deadlock` is raised if a task registered by `must_finish` still waits; otherwise only observers
        fire. An unhandled error of a callback is raised, too. Raises ValueError if `time_s` is past or
        infinite.
        """
        if not self.now_s <= time_s < math.inf:
            raise ValueError(f"run_until({time_s}): must be finite and not before {self.now_s}")
        if self._run(time_s):
            return False
        self.now_s = time_s
        return True

    def run_forever(self) -> None:
        """Run until `stop` or `pause`, or until only observers are left.

        Raises `Deadlock` if only observers are left and a `must_finish` task waits.
        """
        if not self._run(math.inf) and self._must_finish:
            raise self._deadlock(self._must_finish)

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until the future or coroutine is done; return its result or raise its exception.

        Raises `Deadlock`, which lists every task and its position, if only observers are left before it is
        done.
        """
        self._check_idle()
        awaited = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        awaited.add_done_callback(self._stop_if_awaited)
        self._awaited = awaited
        try:
            stopped = self._run(math.inf)
        finally:
            self._awaited = None
            awaited.remove_done_callback(self._stop_if_awaited)
        if awaited.done():
            return awaited.result()
        if stopped:
            raise RuntimeError("the loop was stopped before the future was done")
        raise self._deadlock(self.tasks())

    def _stop_if_awaited(self, future: asyncio.Future[Any]) -> None:
        # If an error ends a run just after its future is done, a later run calls this.
        if future is self._awaited:
            self.stop()

    def _run(self, end_s: float) -> bool:
        """Run events up to `end_s` (infinite: until only observers are left); True after `stop`."""
        self._check_idle()
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generator_started, finalizer=self._generator_abandoned)
        asyncio._set_running_loop(self)
        self._thread = threading.get_ident()
        self.paused = self.paused and self._stopping  # only a pause() since the last run counts
        try:
            self._run_events(end_s)
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            return self._stopping
        finally:
            self._stopping = False
            self._interrupted = True  # tasks woken between two runs wait for the next one
            self._thread = None
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _run_events(self, end_s: float) -> None:
        ready, timers, observers = self._ready, self._timers, self._observers
        next_ready = ready.popleft
        last_s = min(end_s, sys.float_info.max)  # an infinite timer never fires
        guard, iterations, iterations_max = LivelockGuard(), 0, ITERATIONS_MAX  # iterations: at this time
        while True:
            self._interrupted = False  # before the check, as a signal may stop it at any time
            if self._stopping or self._failure is not None:
                return
            until_s = min(last_s, observers[0][0]) if observers else last_s
            try:
                while not self._interrupted:
                    if ready:
                        iterations += 1
                        if iterations > iterations_max:
                            iterations -= iterations_max // 100  # interrupt again after one per cent more
                            guard.interrupt(ready, self.now_s)
                        # One iteration: due timers are queued after the ready callbacks, and all of these
                        # run. Callbacks that they make ready wait for the next iteration.
                        if timers and timers[0][0] <= self.now_s:
                            self._queue_due_timers()
                        for _ in range(len(ready)):
                            next_ready().fire()
                    elif timers and timers[0][0] <= until_s:
                        when, number, timer = heappop(timers)
                        if timer.due != number:
                            self._cancelled -= 1
                            continue
                        iterations = iterations + 1 if when == self.now_s else 0
                        self.now_s = when
                        timer.due = NEVER
                        if iterations > iterations_max or (timers and timers[0][0] <= when):
                            ready.append(timer)
                        else:  # the only event of its time
                            timer.fire()
                        del timer  # an error of a task keeps this frame alive, which must not keep the task
                    elif not self._next_observer(end_s):
                        return
                    else:
                        iterations = 0
                        break
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": "error in a callback", "exception": error})

    def _queue_due_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now_s:
            _, number, timer = heappop(timers)
            if timer.due != number:
                self._cancelled -= 1
            else:
                timer.due = NEVER
                self._ready.append(timer)

    def _next_observer(self, end_s: float) -> bool:
        """Make the next observer ready; False if none is due by `end_s`. No timer is due before it."""
        timers = self._timers
        while timers and timers[0][2].due != timers[0][1]:
            heappop(timers)
            self._cancelled -= 1
        if not timers or timers[0][0] == math.inf:
            if end_s == math.inf:
                return False
            if self._must_finish:
                raise self._deadlock(self._must_finish)
        if not self._observers or self._observers[0][0] > end_s:
            return False
        time_s, _, event = heappop(self._observers)
        if not event._cancelled:
            self.now_s = time_s
            self._ready.append(event)
        return True

    def stop(self) -> None:
        """End the run after the current iteration; without a running loop, end the next run at its start."""
        self._stopping, self.paused, self._interrupted = True, False, True

    def pause(self) -> None:
        """Stop a run that continues later: `paused` is then true. A pause does not undo a `stop`."""
        if not self._stopping:
            self._stopping = self.paused = self._interrupted = True

    def is_running(self) -> bool:
        return self._thread is not None

    def shutdown(self) -> None:
        """Cancel all tasks in the order of their creation, let them clean up, and close the loop.

        The clean-up takes virtual time. Its first error is raised; the loop is closed in any case.
        """
        self._stopping = False  # a `stop` after the last run does not concern the clean-up
        try:
            unfinished = self.tasks()
            for task in unfinished:
                task.cancel()
            if unfinished:
                for ending in self.run_until_complete(asyncio.gather(*unfinished, return_exceptions=True)):
                    if isinstance(ending, Exception):
                        raise ending
            self.run_until_complete(self.shutdown_asyncgens())
        finally:
            self.close()

    def close(self) -> None:
        """Drop every event and close the loop. An error that no run has raised is logged."""
        if self.is_running():
            raise RuntimeError("a running loop can't be closed")
        for events in (self._ready, self._timers, self._observers, self._tasks, self._must_finish):
            events.clear()
        super().close()

    def _check_idle(self) -> None:
        if self._closed:
            self._refuse_closed()
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("an event loop is already running in this thread")

    # Tasks

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        if self._closed:
            self._refuse_closed()
        task = cast("asyncio.Task[T]", VirtualTask(coro, self, name, context))
        self._tasks[task] = None
        return task

    def task_ended(self, task: asyncio.Task[Any]) -> None:
        """Remove a task that has ended. Tasks call this themselves, because callbacks take much memory."""
        self._tasks.pop(task, None)
        self._must_finish.pop(task, None)

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the unfinished tasks, in the order of their creation (`asyncio.all_tasks` has no order)."""
        return [task for task in self._tasks if not task.done()]

    def must_finish(self, task: asyncio.Task[Any], describe: Callable[[], str]) -> None:
        """Register a task that must finish: if it still waits when no event is left, this is a `Deadlock`, in
        which `describe()` states the reason for the wait."""
        if not task.done():
            self._must_finish[task] = describe

    def _deadlock(self, tasks: Iterable[asyncio.Task[Any]]) -> Deadlock:
        describe = self._must_finish
        return Deadlock(
            self.now_s,
            [
                (task.get_name(), describe[task]() if task in describe else waiting_place(task))
                for task in tasks
            ],
        )
