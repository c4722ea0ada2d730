"""The queues of a virtual loop, as the tasks and events see them that wait in these."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol

from sim.kernel.bare_loop import BareLoop

NEVER = -1  # the number of a timer that is not waiting


class Timer(Protocol):
    """What the loop fires when its time has come: a callback, a sleeping task, a message or a job.

    due: the number of its entry in the loop's heap of timers; NEVER while it has none. To cancel a timer
    is to change this number: the loop skips entries with any other number.
    """

    due: int

    def fire(self) -> None: ...


class TimerLoop(BareLoop):
    """What a virtual loop has for its tasks and events; `sim.kernel.clock` has the loop itself.

    _ready: what is fired in the next iteration. _timers: a heap of (time in seconds, number, timer).
    """

    now_s: float
    context: Context
    _ready: deque[Timer]
    _timers: list[tuple[float, int, Timer]]
    _next_number: Callable[[], int]

    def _timer_cancelled(self) -> None:
        """Called for a timer whose `due` has become NEVER while its entry is in the heap."""
        raise NotImplementedError

    def wake(self, signal: Any) -> None:
        """Wake the task that waits for a signal."""
        raise NotImplementedError

    def task_ended(self, task: Any) -> None:
        """Called for a task that has ended."""
        raise NotImplementedError
