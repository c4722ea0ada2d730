"""Tasks of a virtual loop: coroutines that sleep without a future, a timer handle and a callback each time.

`asyncio.sleep` makes all three, and takes two turns of the loop, for the commonest thing that happens in a
simulation. A coroutine that awaits `sleep` of this module hands its task the seconds instead, and the task
puts itself among the timers. Whatever else it awaits (futures, other tasks, a bare `yield`) works as
on any loop.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task, _register_task  # meant for tasks other than asyncio's
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from heapq import heappush
from itertools import count
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from sim.kernel.clock import VirtualLoop

T = TypeVar("T")

NEVER = -1  # number of no timer

_numbers = count(1)  # for tasks without a name; only people read them


@coroutine
def sleep(seconds: float) -> Generator[float, None, None]:
    """Lets `seconds` of virtual time pass; if they are not above 0, lets what is ready run first.

    Only tasks of a virtual loop can await it.
    """
    if seconds != seconds:
        raise ValueError("the length of a sleep is not a number (nan)")
    yield float(seconds)


class Signal:
    """Something that one task waits for, directly: less than a future, and made in large numbers.

    A future keeps callbacks and a result, and asks the loop to call each callback; a signal knows the one
    task of a virtual loop that awaits it. In `asyncio.gather` and the like a task of their own awaits it, and
    to cancel that before its first step leaves the signal as it is.
    """

    __slots__ = ("_done", "_reason", "_task")

    def __init__(self) -> None:
        self._task: VirtualTask[Any] | None = None
        self._done = False
        self._reason: tuple[Any, ...] | None = None  # what CancelledError gets, if it was cancelled

    def __await__(self) -> Generator[Signal, None, None]:
        if not self._done:
            yield self
        if self._reason is not None:
            raise asyncio.CancelledError(*self._reason)

    def done(self) -> bool:
        """Whether it has come, or was cancelled."""
        return self._done

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._reason is not None

    def set_result(self, result: None) -> None:
        """It has come: the task goes on when it is its turn. asyncio.InvalidStateError if it is done."""
        if self._done:
            raise asyncio.InvalidStateError("a signal comes once")
        self._done = True
        task, self._task = self._task, None  # whoever keeps the signal need not keep the task
        if task is not None:
            task._virtual_loop._ready.append(task)

    def cancel(self, msg: Any = None) -> bool:
        """CancelledError for the task that waits, or will; False if it is done."""
        if self._done:
            return False
        self._reason = () if msg is None else (msg,)
        self.set_result(None)
        return True


class Bell(Signal):
    """A signal that one task awaits again and again: each time it goes on with the next ring."""

    __slots__ = ()

    def __await__(self) -> Generator[Signal, None, None]:
        self._done, self._reason = False, None
        yield self
        if self._reason is not None:
            raise asyncio.CancelledError(*self._reason)

    def ring(self) -> None:
        """Let the task that waits go on when it is its turn; nothing happens if none does."""
        task = self._task
        if task is not None:
            self._task = None
            self._done = True
            task._virtual_loop._ready.append(task)


class VirtualTask(asyncio.Future[T]):
    """A coroutine on its way: what `asyncio.Task` is on other loops, with the same methods and meaning."""

    __slots__ = (
        "_awaited",
        "_cancel_requests",
        "_context",
        "_coro",
        "_must_cancel",
        "_name",
        "_reason",
        "_send",
        "_virtual_loop",
        "due",
    )

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        loop: VirtualLoop,
        name: str | None,
        context: Context | None,
    ) -> None:
        super().__init__(loop=loop)
        if not asyncio.iscoroutine(coro):
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        self._coro = coro
        self._send = coro.send
        self._virtual_loop = loop
        self._name = f"Task-{next(_numbers)}" if name is None else str(name)
        self._context = copy_context() if context is None else context
        self._awaited: Any = None  # the future or signal that it waits for
        self.due = NEVER  # number of the timer that it sleeps by
        self._must_cancel = False  # it will be cancelled when it runs next
        self._reason: tuple[Any, ...] = ()  # of the cancellation, if `cancel` got one
        self._cancel_requests = 0
        _register_task(self)  # type: ignore[arg-type]
        loop._ready.append(self)

    def __repr__(self) -> str:
        waits = self._awaited is not None or self.due != NEVER
        state = "done" if self.done() else "waiting" if waits else "ready"
        return f"<task {self._name}, {state}>"

    # What asyncio asks of a task

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
        """Throws CancelledError into the coroutine when it runs next; False if it is done."""
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
        """How many calls of `cancel` have not been taken back by `uncancel`."""
        return self._cancel_requests

    def uncancel(self) -> int:
        """Takes one `cancel` back, for whoever called it; returns `cancelling()`."""
        self._cancel_requests = max(0, self._cancel_requests - 1)
        return self._cancel_requests

    # Running

    def fire(self, error: BaseException | None = None) -> None:
        """Runs the coroutine to its next await; `error` is thrown into it."""
        if self._must_cancel:
            self._must_cancel = False
            if not isinstance(error, asyncio.CancelledError):
                error = asyncio.CancelledError(*self._reason)
        self._awaited = None
        loop = self._virtual_loop
        _enter_task(loop, self)  # type: ignore[arg-type]
        try:
            if error is None:
                awaited = self._context.run(self._send, None)
            else:
                awaited = self._context.run(self._coro.throw, error)
        except StopIteration as end:
            if self._must_cancel:  # the coroutine cancelled itself in its last lines
                super().cancel(*self._reason)
            else:
                super().set_result(end.value)
        except asyncio.CancelledError as cancelled:
            super().cancel(*cancelled.args[:1])
        except SystemExit as leaving:  # of a method's own: it ends who called it, as any error does
            called = RuntimeError(f"sys.exit({leaving.code!r}) was called; a run ends as its scenario says")
            super().set_exception(called.with_traceback(leaving.__traceback__))
        except BaseException as failure:
            super().set_exception(failure)
            if isinstance(failure, KeyboardInterrupt):
                raise
        else:
            if type(awaited) is not float:
                self._wait_for(awaited)
            elif awaited > 0.0:
                next_number = loop._next_number  # a line of its own, as in VirtualLoop.schedule
                self.due = due = next_number()
                heappush(loop._timers, (loop.now_s + awaited, due, self))
            else:
                loop._ready.append(self)
        finally:
            _leave_task(loop, self)  # type: ignore[arg-type]
            # An error's traceback holds this frame, and would so hold itself and the task.
            self = error = None  # type: ignore[assignment]

    def _wait_for(self, awaited: Any) -> None:
        """Goes on when that is done; what can't be waited for is an error in the coroutine."""
        loop = self._virtual_loop
        if isinstance(awaited, Signal) and awaited._task is None:
            awaited._task = self
            self._awaited = awaited
            if self._must_cancel and awaited.cancel(*self._reason):
                self._must_cancel = False
            return
        if awaited is None:  # a bare yield lets what is ready run first
            loop._ready.append(self)
            return
        blocking = getattr(awaited, "_asyncio_future_blocking", None)
        if isinstance(awaited, Signal):
            problem = f"two tasks await one signal, which only wakes the first: {awaited._task!r}"
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
