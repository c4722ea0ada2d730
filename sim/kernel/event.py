"""Entries of a virtual loop's queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from sim.kernel.timers import NEVER, TimerLoop


class Event(asyncio.TimerHandle):
    """Callback that waits in the ready queue or among the timers.

    The base class provides the type and the slots. Its constructor and `cancel` are not called: this class
    sets the fields itself, and does without asyncio's debug mode.
    """

    __slots__ = ("due",)

    _callback: Callable[..., object] | None
    _args: Any
    _context: Context
    _loop: TimerLoop

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: TimerLoop,
        context: Context | None,
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self.due = NEVER  # see `Timer`

    def fire(self) -> None:
        """Run the callback, unless it has been canceled."""
        try:
            if not self._cancelled:
                self._context.run(self._callback, *self._args)  # type: ignore[arg-type]
        finally:
            self = None  # type: ignore[assignment]  # an error that a task keeps also keeps this frame alive

    def cancel(self) -> None:
        """Prevent the callback from running, and drop the references to it and its arguments."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None
            if self.due != NEVER:
                self.due = NEVER
                self._loop._timer_cancelled()

    def __repr__(self) -> str:
        what = "cancelled" if self._cancelled else getattr(self._callback, "__qualname__", self._callback)
        return f"<event {what} at {self._when:g} s>"
