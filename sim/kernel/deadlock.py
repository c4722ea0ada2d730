"""Error of a program that waits for an event that can no longer happen."""

import asyncio
import os
from collections.abc import Iterable
from typing import Any

_INFRASTRUCTURE = (os.path.dirname(asyncio.__file__), os.path.join(os.path.dirname(__file__), "task.py"))
_LISTED_MAX = 20  # waiting tasks that the message lists


class Deadlock(RuntimeError):
    """Error: no event is left that could wake the waiting tasks.

    time_s: virtual time in seconds. waiting: pairs of a task's name and the reason for its wait.
    """

    problem = "deadlock at {} s of virtual time: no events are left, and these tasks wait forever"

    def __init__(self, time_s: float, waiting: Iterable[tuple[str, str]]) -> None:
        self.time_s = time_s
        self.waiting = list(waiting)
        lines = [self.problem.format(f"{time_s:g}")]
        lines += [f"  {who}: {what}" for who, what in self.waiting[:_LISTED_MAX]]
        if len(self.waiting) > _LISTED_MAX:
            lines.append(f"  and {len(self.waiting) - _LISTED_MAX} more")
        super().__init__("\n".join(lines))


def waiting_place(task: asyncio.Task[Any]) -> str:
    """Return the innermost line outside asyncio where a task waits, as "Client.step at client.py:42"."""
    found = ""
    inner: Any = task.get_coro()
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
        if frame is None:  # a future: the end of the chain
            break
        code = frame.f_code
        if not (found and code.co_filename.startswith(_INFRASTRUCTURE)):
            found = f"{code.co_qualname} at {code.co_filename}:{frame.f_lineno}"
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    return found
