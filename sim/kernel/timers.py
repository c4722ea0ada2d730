"""The parts of a virtual loop that its timers, tasks and events use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol

from sim.kernel.bare_loop import BareLoop

NEVER = -1  # number of a timer that is not waiting


class Timer(Protocol):
    """Entry that the loop fires at its time: a callback, a sleeping task, a message or a job.

    due: number of its entry in the loop's heap of timers; NEVER without an entry. To cancel a timer, change
    this number: the loop skips entries with any other number.
    """

    due: int

    def fire(self) -> None: ...


class TimerLoop(BareLoop):
    """Parts of a virtual loop for its tasks and events; `sim.kernel.clock` contains the loop itself.

    _ready: entries that fire in the next iteration. _timers: a heap of (time in seconds, number, timer).
    """

    now_s: float
    context: Context
    _ready: deque[Timer]
    _timers: list[tuple[float, int, Timer]]
    _next_number: Callable[[], int]

    def _timer_cancelled(self) -> None:
        """Count a timer whose `due` has become NEVER while its entry is in the heap."""
        raise NotImplementedError

    def wake(self, signal: Any) -> None:
        """Wake the task that waits for a signal."""
        raise NotImplementedError

    def task_ended(self, task: Any) -> None:
        """Remove a task that has ended."""
        raise NotImplementedError
