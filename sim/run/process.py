"""State of the process that a run changes, and restores at its end."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sim.learning.engine.autotune import usable_cores

SAFE_PATH = "PYTHONSAFEPATH"


_sharing = 1  # number of runs that use the cores of this machine


def cores() -> int:
    """Return the number of cores that a run in this process may use."""
    return max(1, usable_cores() // _sharing)


@contextmanager
def shared_cores(runs: int) -> Iterator[None]:
    """Share the cores of this machine among `runs` runs inside the context."""
    global _sharing
    before, _sharing = _sharing, runs
    try:
        yield
    finally:
        _sharing = before


@contextmanager
def without_main_module() -> Iterator[None]:
    """Keep processes that are started inside the context from importing the user's script again."""
    main = vars(sys.modules["__main__"])
    hidden: dict[str, Any] = {name: main.pop(name) for name in ("__file__", "__spec__") if name in main}
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(hidden)


@contextmanager
def without_current_folder() -> Iterator[None]:
    """Keep processes that are started inside the context from importing from the current folder.

    The folder may be untrusted, and Python searches it first with -m and with -c, which multiprocessing uses.
    The environment variable PYTHONSAFEPATH has the effect of -P, and the processes inherit it.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before
