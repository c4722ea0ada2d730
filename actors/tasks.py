"""Tasks of one actor: activity, current line and end of each task."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from types import CoroutineType
from typing import Any

from actors.message import ActorError
from actors.source_location import coroutine_frames, innermost_own_line


class Tasks:
    """Unfinished tasks of an actor, in order of creation. A task's name is the actor's name and a label.

    The event loop calls `failed(where, error)` with the label and the error of each task that fails. `failed`
    is None before the start and after the end of the actor, so that no reference cycle keeps the actor alive.
    """

    __slots__ = ("_actor", "_unfinished", "failed")

    def __init__(self, actor: str) -> None:
        self.failed: Callable[[str, Exception], None] | None = None
        self._actor = actor
        self._unfinished: list[asyncio.Task[Any]] = []

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(list(self._unfinished))

    def __contains__(self, task: object) -> bool:
        return task in self._unfinished

    def __len__(self) -> int:
        return len(self._unfinished)

    def start(self, coroutine: Coroutine[Any, Any, Any], label: str) -> asyncio.Task[Any]:
        """Run a coroutine as a task with a label."""
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._actor}: {label}")
        self._unfinished.append(task)
        task.add_done_callback(self._ended)
        return task

    def relabel(self, label: str) -> None:
        """Change the label of the current task, if it is one of these."""
        task = asyncio.current_task()
        if task in self._unfinished:
            task.set_name(f"{self._actor}: {label}")

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Cancel all tasks; return those that have yet to unwind."""
        tasks = list(self._unfinished)
        for task in tasks:
            task.cancel()
        return tasks

    def described(self, kind: type, task: asyncio.Task[Any], handled: str | None) -> str:
        """Describe a task: its label, the message that it handles, and the line at which it waits."""
        line = waiting_line(kind, task)
        return self._label(task) + (f" of {handled}" if handled else "") + (f" ({line})" if line else "")

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._unfinished.remove(task)
        if not task.cancelled():
            error = task.exception()
        elif task.cancelling():
            return  # a cancellation on purpose
        else:
            error = ActorError("awaited a task or future that had been canceled")
        # Other BaseExceptions, such as KeyboardInterrupt, have already left the event loop.
        if isinstance(error, Exception) and self.failed is not None:
            self.failed(self._label(task), error)

    def _label(self, task: asyncio.Task[Any]) -> str:
        return task.get_name().removeprefix(f"{self._actor}: ")


def waiting_line(kind: type, task: asyncio.Task[Any]) -> str | None:
    """Return the line of the code of class `kind`, or of a base outside the framework, where a task waits."""
    return innermost_own_line(kind, coroutine_frames(task.get_coro()))


def handled_message(pump: asyncio.Task[Any]) -> str | None:
    """Return the class of the message that `on_message` is handling; None between messages."""
    coroutine: Any = pump.get_coro()
    if not isinstance(getattr(coroutine, "cr_await", None), CoroutineType):
        return None  # it waits for the next message
    return type(coroutine.cr_frame.f_locals["message"]).__name__
