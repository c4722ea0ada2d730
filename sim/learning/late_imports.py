"""What libraries import only in the first call that needs it, imported where nothing is held up by it.

Such an import while a run goes on would leave its mark on the run: some of these modules keep the frames of
whoever was under way, and so all that was held there, until the next collection of garbage. Which rows are
free then, and hence the order of later sums, would hang on what else the process had done before.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TypeVar

Result = TypeVar("Result")


def prepare_vmap() -> None:
    """What torch imports in its first call of `grad` under `vmap`; takes a second, once in a process."""
    import_module("torch._dynamo")


def in_frames_of_its_own(function: Callable[[], Result]) -> Result:
    """What `function` returns or raises, from a thread: what it imports keeps no frame of the caller's."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()
