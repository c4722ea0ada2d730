"""The tasks of one actor: what each does, where it is, and how it ended."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from types import CoroutineType
from typing import Any

from actors.message import ActorError
from actors.source_location import of_coroutine, own_line


class Tasks:
    """The unfinished tasks of an actor, in order of creation. The name of each is the actor's, and what it
    does, in words.

    `failed(where, error)` is called with the words and the error of each that fails, from the event loop;
    None before the actor's start and after its end, so that no circle of references keeps it.
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
        """Run a coroutine."""
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._actor}: {label}")
        self._unfinished.append(task)
        task.add_done_callback(self._ended)
        return task

    def relabel(self, label: str) -> None:
        """Say what the current task does from now on, if it is one of these."""
        task = asyncio.current_task()
        if task in self._unfinished:
            task.set_name(f"{self._actor}: {label}")

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Cancel all; returns those that have yet to unwind."""
        tasks = list(self._unfinished)
        for task in tasks:
            task.cancel()
        return tasks

    def described(self, kind: type, task: asyncio.Task[Any], handled: str | None) -> str:
        """In words: what a task of an actor of class `kind` does, with which message, and in which line."""
        line = line_of(kind, task)
        return self._label(task) + (f" of {handled}" if handled else "") + (f" ({line})" if line else "")

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._unfinished.remove(task)
        if not task.cancelled():
            error = task.exception()
        elif task.cancelling():
            return  # somebody meant it
        else:
            error = ActorError("awaited a task or future that had been cancelled")
        # Other BaseExceptions, such as KeyboardInterrupt, have already left the event loop.
        if isinstance(error, Exception) and self.failed is not None:
            self.failed(self._label(task), error)

    def _label(self, task: asyncio.Task[Any]) -> str:
        return task.get_name().removeprefix(f"{self._actor}: ")


def line_of(kind: type, task: asyncio.Task[Any]) -> str | None:
    """The line of the code of class `kind`, or of a base that is no machinery, in which a task waits."""
    return own_line(kind, of_coroutine(task.get_coro()))


def handled_message(pump: asyncio.Task[Any]) -> str | None:
    """The class of the message that the task which hands them to `on_message` is busy with."""
    coroutine: Any = pump.get_coro()
    if not isinstance(getattr(coroutine, "cr_await", None), CoroutineType):
        return None  # it waits for the next message
    return type(coroutine.cr_frame.f_locals["message"]).__name__
