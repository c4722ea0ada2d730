"""Who computes parts of a flush, and of an evaluation, at the same time."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Workers:
    """So many threads of this process. Others compute elsewhere what these are given (`sim.run.on_ray`)."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.alone = count == 1
        """Whether nobody else needs memory where one of them computes."""
        self._threads = ThreadPoolExecutor(count, "engine") if count > 1 else None

    @property
    def each(self) -> Callable[..., Iterable[Any]]:
        """`map`, by as many threads as there are workers."""
        return map if self._threads is None else self._threads.map

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function returns, whose only effect is on `Rows` that it is given; for one of the threads.

        It and its arguments are such that a `Packer` takes them.
        """
        return function(*arguments)
