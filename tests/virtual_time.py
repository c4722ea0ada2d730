"""Running one coroutine in virtual time."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from sim.kernel.clock import VirtualLoop

T = TypeVar("T")


def run_virtual(
    coro: Coroutine[Any, Any, T], *, until: float | None = None, shuffle_seed: int | None = None
) -> T | None:
    """Runs `coro` on a virtual loop of its own and cancels what it leaves behind.

    Without `until` it runs until `coro` is done, and returns its result. With `until` it runs everything up
    to that time (seconds), and returns the result, or None if `coro` is not done by then.
    """
    loop = VirtualLoop(shuffle_seed)
    try:
        if until is None:
            return loop.run_until_complete(coro)
        task = loop.create_task(coro)
        loop.run_until(until)
        return task.result() if task.done() else None
    finally:
        loop.shutdown()
