"""What a run changes in its process, and puts back at its end."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sim.learning.engine.autotune import usable_cores

SAFE_PATH = "PYTHONSAFEPATH"


_sharing = 1  # how many runs use the cores of this machine


def cores() -> int:
    """Cores that a run in this process may use."""
    return max(1, usable_cores() // _sharing)


@contextmanager
def shared_cores(runs: int) -> Iterator[None]:
    """So many runs use the cores of this machine meanwhile."""
    global _sharing
    before, _sharing = _sharing, runs
    try:
        yield
    finally:
        _sharing = before


@contextmanager
def without_main_module() -> Iterator[None]:
    """Processes that are started meanwhile do not import the user's script, which would begin all again."""
    main = vars(sys.modules["__main__"])
    hidden: dict[str, Any] = {name: main.pop(name) for name in ("__file__", "__spec__") if name in main}
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(hidden)


@contextmanager
def safe_path() -> Iterator[None]:
    """Processes that are started meanwhile import nothing from the current folder, be it a stranger's.

    Python looks there first with -c, as which multiprocessing starts its own, and with -m. The variable is
    what -P says, and is inherited.
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
