"""Workers that compute parts of a flush, and of an evaluation, at the same time."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Workers:
    """Pool of `count` threads of this process. Subclasses compute elsewhere (`sim.run.on_ray`)."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.alone = count == 1
        """True if no other worker needs memory on the device of a worker."""
        self._threads = ThreadPoolExecutor(count, "engine") if count > 1 else None

    @property
    def each(self) -> Callable[..., Iterable[Any]]:
        """`map`, with one thread for each worker."""
        return map if self._threads is None else self._threads.map

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on behalf of one of the threads, and return its result.

        The function must have no side effects except on `OutputRows` arguments. A `ParcelPickler` must be
        able to pickle the function and its arguments.
        """
        return function(*arguments)
