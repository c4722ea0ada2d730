"""Tasks of a virtual loop. They sleep without a future, a timer handle or a callback.

`asyncio.sleep` creates all three and takes two iterations of the loop, and simulations sleep very often. The
`sleep` of this module yields the seconds to its task, and the task itself becomes the timer. Futures, other
tasks and a bare `yield` are awaited as on any loop.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task, _register_task  # meant for tasks other than asyncio's
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from heapq import heappush
from itertools import count
from types import coroutine
from typing import Any, TypeVar

from sim.kernel.timers import NEVER, TimerLoop

T = TypeVar("T")


_numbers = count(1)  # for default names of tasks


@coroutine
def sleep(seconds: float) -> Generator[float, None, None]:
    """Let `seconds` of virtual time pass. If they are not above 0, all ready callbacks run first.

    Only tasks of a virtual loop can await it. Raises ValueError for nan.
    """
    if seconds != seconds:
        raise ValueError("the length of a sleep is not a number (nan)")
    yield float(seconds)


class Signal:
    """Future without a result, which a single task may await. Jobs on devices are signals.

    It is cheaper than a future, which keeps a list of callbacks that the loop calls: a signal only stores the
    task that awaits it. `asyncio.gather` wraps it in a task; canceling that task before its first step does
    not cancel the signal.
    """

    __slots__ = ("_done", "_reason", "_task")

    def __init__(self) -> None:
        self._task: VirtualTask[Any] | None = None
        self._done = False
        self._reason: tuple[Any, ...] | None = None  # arguments of CancelledError, if canceled

    def __await__(self) -> Generator[Signal, None, None]:
        if self._reason is not None:
            raise asyncio.CancelledError(*self._reason)
        return iter(() if self._done else (self,))  # type: ignore[return-value]  # without frames

    def done(self) -> bool:
        """Return True if the signal was set or canceled."""
        return self._done

    def cancelled(self) -> bool:
        """Return True if the signal was canceled."""
        return self._reason is not None

    def set_result(self, result: None) -> None:
        """Make the waiting task ready to run. Raises asyncio.InvalidStateError if the signal is done."""
        if self._done:
            raise asyncio.InvalidStateError("a signal is set only once")
        self._done = True
        task, self._task = self._task, None  # a reference to the signal must not keep the task alive
        if task is not None:
            if self._reason is not None:
                task._must_cancel, task._reason = True, self._reason
            task._virtual_loop._ready.append(task)

    def cancel(self, msg: Any = None) -> bool:
        """Raise CancelledError in the task that waits, now or later. False if the signal is done."""
        if self._done:
            return False
        self._reason = () if msg is None else (msg,)
        self.set_result(None)
        return True


class Bell(Signal):
    """Signal that one task can await many times. Each `ring` ends one wait."""

    __slots__ = ()

    def __await__(self) -> Generator[Signal, None, None]:
        self._done, self._reason = False, None
        return iter((self,))  # type: ignore[return-value]

    def ring(self) -> None:
        """Resume the waiting task, as `VirtualLoop.wake` does. Does nothing if no task waits."""
        if self._task is not None:
            self._done = True
            self._task._virtual_loop.wake(self)


class VirtualTask(asyncio.Future[T]):
    """Running coroutine: the `asyncio.Task` of a virtual loop, with the same methods and meaning."""

    __slots__ = (
        "_awaited",
        "_cancel_requests",
        "_context",
        "_coro",
        "_must_cancel",
        "_name",
        "_reason",
        "_virtual_loop",
        "due",
    )

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        loop: TimerLoop,
        name: str | None,
        context: Context | None,
    ) -> None:
        super().__init__(loop=loop)
        if not asyncio.iscoroutine(coro):
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        self._coro = coro
        self._virtual_loop = loop
        self._name = f"Task-{next(_numbers)}" if name is None else str(name)
        self._context = copy_context() if context is None else context
        self._awaited: Any = None  # the awaited future or signal
        self.due = NEVER  # the number of its timer while it sleeps
        self._must_cancel = False  # canceled when it runs next
        self._reason: tuple[Any, ...] = ()  # message of the cancellation, if any
        self._cancel_requests = 0
        _register_task(self)  # type: ignore[arg-type]
        loop._ready.append(self)

    def __repr__(self) -> str:
        waits = self._awaited is not None or self.due != NEVER
        state = "done" if self.done() else "waiting" if waits else "ready"
        return f"<task {self._name}, {state}>"

    # Interface of asyncio tasks

    def get_coro(self) -> Generator[Any, None, T] | Coroutine[Any, Any, T]:
        return self._coro

    def get_name(self) -> str:
        return self._name

    def set_name(self, value: object) -> None:
        self._name = str(value)

    def get_context(self) -> Context:
        return self._context

    def set_result(self, result: T) -> None:
        raise RuntimeError("a task gets its result from its coroutine")

    def set_exception(self, exception: type | BaseException) -> None:
        raise RuntimeError("a task gets its exception from its coroutine")

    def cancel(self, msg: Any = None) -> bool:
        """Throw CancelledError into the coroutine when it runs next; False if it is done."""
        if self.done():
            return False
        self._cancel_requests += 1
        self._reason = () if msg is None else (msg,)
        awaited = self._awaited
        if self.due != NEVER:
            self.due = NEVER
            self._virtual_loop._timer_cancelled()
            self._virtual_loop._ready.append(self)
        elif awaited is not None and awaited.cancel(*self._reason):
            return True
        self._must_cancel = True
        return True

    def cancelling(self) -> int:
        """Return the number of calls of `cancel` that `uncancel` has not undone."""
        return self._cancel_requests

    def uncancel(self) -> int:
        """Undo one call of `cancel`, and return `cancelling()`."""
        self._cancel_requests = max(0, self._cancel_requests - 1)
        return self._cancel_requests

    # Running

    def fire(self, error: BaseException | None = None) -> None:
        """Run the coroutine to its next await. `error`, if any, is thrown into it."""
        if self._must_cancel:
            self._must_cancel = False
            if not isinstance(error, asyncio.CancelledError):
                error = asyncio.CancelledError(*self._reason)
        self._awaited = None
        loop = self._virtual_loop
        _enter_task(loop, self)  # type: ignore[arg-type]
        try:
            if error is None:
                awaited = self._context.run(self._coro.send, None)
            else:
                awaited = self._context.run(self._coro.throw, error)
            if isinstance(awaited, Signal) and awaited._task is None:
                awaited._task = self
                self._awaited = awaited
                if self._must_cancel:
                    awaited.cancel(*self._reason)
            elif type(awaited) is float and awaited > 0.0:
                next_number = loop._next_number  # as in VirtualLoop.schedule
                self.due = due = next_number()
                heappush(loop._timers, (loop.now_s + awaited, due, self))
            else:
                self._wait_for(awaited)
        except BaseException as ending:
            self._end_by(ending)
        finally:
            _leave_task(loop, self)  # type: ignore[arg-type]
            # An error's traceback keeps this frame alive, which would keep the error and the task alive.
            self = error = None  # type: ignore[assignment]

    def _end_by(self, ending: BaseException) -> None:
        """Record the end of the coroutine: it has returned, was canceled or has failed."""
        try:
            if isinstance(ending, StopIteration) and not self._must_cancel:
                super().set_result(ending.value)
            elif isinstance(ending, StopIteration):  # it canceled itself before it returned
                super().cancel(*self._reason)
            elif isinstance(ending, asyncio.CancelledError):
                super().cancel(*ending.args[:1])
            elif isinstance(ending, SystemExit):  # a method called sys.exit(): it fails like any other error
                text = f"sys.exit({ending.code!r}) was called; the scenario decides when a run ends"
                super().set_exception(RuntimeError(text).with_traceback(ending.__traceback__))
            else:
                super().set_exception(ending)
                if isinstance(ending, KeyboardInterrupt):
                    raise ending
        finally:
            self._virtual_loop.task_ended(self)
            self = ending = None  # type: ignore[assignment]

    def _wait_for(self, awaited: Any) -> None:
        """Wait for an object other than a signal. If that is impossible, raise an error in the coroutine."""
        loop = self._virtual_loop
        if awaited is None or type(awaited) is float:  # a bare yield, or a sleep of no time
            loop._ready.append(self)
            return
        blocking = getattr(awaited, "_asyncio_future_blocking", None)
        if isinstance(awaited, Signal):
            problem = f"two tasks await one signal, which wakes only the first: {awaited._task!r}"
        elif not blocking:
            problem = f"a task can await futures and coroutines, not {awaited!r}"
        elif awaited is self:
            problem = f"{self!r} awaits itself"
        elif awaited.get_loop() is not loop:
            problem = f"{self!r} awaits {awaited!r}, which belongs to another loop"
        else:
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self, context=loop.context)  # see VirtualLoop.call_soon
            self._awaited = awaited
            if self._must_cancel and awaited.cancel(*self._reason):
                self._must_cancel = False
            return
        loop.call_soon(self.fire, RuntimeError(problem), context=loop.context)
